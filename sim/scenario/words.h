// The words of a host operation in a scenario's TOML form:
//
//   send COMM to RANK SIZE [as LABEL] on STREAM      recv COMM from RANK SIZE [as LABEL] on STREAM
//   all_reduce COMM SIZE on STREAM                   (all_gather, reduce_scatter, barrier, all_to_all likewise)
//   broadcast COMM root RANK SIZE on STREAM          (reduce, gather, scatter likewise)
//   group on STREAM: CALL; CALL; ...                 a call as above; its own "on STREAM" may be left out; or a
//                                                    group inside the group: { CALL; ... }
//   launch on STREAM        record EVENT on STREAM        wait EVENT on STREAM
//   sync_stream STREAM      sync_event EVENT              sync_device
//   comm_init COMM RANK... [release RELEASE] [nonblocking]
//   comm_init_all COMM RANK...
//   comm_split PARENT into COMM RANK... [nonblocking] [share]
//   comm_shrink PARENT into COMM RANK... [nonblocking] [abort]
//   comm_grow PARENT into COMM RANK... [nonblocking]
//   comm_finalize COMM [nonblocking]      comm_destroy COMM [nonblocking]
//   comm_abort COMM                       comm_ready COMM
//   comm_sync COMM                        comm_revoke COMM                        turn COMM
//   graph_begin on STREAM ... graph_end              between them a call in a group may end in "uncaptured"
//   fault on STREAM                       exit
//
// Words are separated by blanks. A name that holds a blank, one of : ; { } " or nothing at all is put in double
// quotes, in which \" and \\ stand for themselves. Sizes are written as 4096, 4KiB, 100MiB.
#pragma once

#include <string>
#include <string_view>

#include "sim/scenario/tree.h"

namespace plumbline::scenario {

// One host operation as the tree's object. The message of an error says what was expected and at which word;
// it has no place.
Result<Json> host_op_of_words(std::string_view text);
std::string words_of_host_op(const HostOp& op);

}  // namespace plumbline::scenario
