// The transport between ranks that are threads of one process. It lends instead of copying.
#pragma once
#include "ringattn/transport.h"

// The table; static, never NULL. Any thread.
extern "C" const ringattn_transport_v1* ringattn_transport_local_v1(void);
