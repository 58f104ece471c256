// The transport between processes over plain TCP: the reference for what happens when something fails, and
// what runs where nothing faster does.
#pragma once
#include "ringattn/transport.h"

// The table; static, never NULL. Any thread.
extern "C" const ringattn_transport_v1* ringattn_transport_tcp_v1(void);
