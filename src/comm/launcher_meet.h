// The ranks of one launch meet: rank 0 hosts, everybody joins.
#pragma once
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "comm/launcher.h"
#include "comm/meeting.h"
#include "comm/meeting_host.h"

namespace ringattn::comm {

// `host` is filled on rank 0 alone; it should live until its wait() has returned, which is after all ranks
// have left. On failure both are null.
Status meet(const Launch& launch, std::int64_t timeout_ms, std::unique_ptr<MeetingHost>& host,
            std::unique_ptr<Meeting>& meeting);

}  // namespace ringattn::comm
