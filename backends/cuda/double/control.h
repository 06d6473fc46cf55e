// What the doubles offer beyond the functions they stand for: how they are set up, how time passes, what they found.
// Everything is C, since the library that holds them is loaded at run time, and text is returned as JSON that stays
// valid until the next call. One thread drives the doubles, whatever number of devices and ranks it plays; or a server
// plays the devices for many processes, each of which finds it by PLUMBLINE_DOUBLE_SERVER and calls what is here too -
// all but the reset, which the others would feel.
//
// Time is virtual. Nothing on a device moves unless plumbline_double_step() is called - or, if asked so, when
// something is polled -, so that the order of a driver's calls decides what it decides in the simulator.
#pragma once

extern "C" {

// Begins anew with so many devices: no streams, events, memory or communicators. `config` is a configuration in
// TOML ("" for the defaults), of which [sim] gives the NCCL model and [time] the times. 0: done; else
// plumbline_double_error() says why not.
int plumbline_double_reset(int devices, const char* config);
const char* plumbline_double_error();

// Makes this process the server of such devices, at the socket, whose name appears when it can be connected to: until
// the command, words that end with a null, has ended, whose exit code is in *code then (128 and the signal, if one
// ended it); without a command, until processes have come and all have gone. Polls take steps, and host functions run
// in the processes that enqueued them. Of a process that goes and leaves communicators the ranks end as by
// plumbline_double_end_process. 0: done, and the verdict is here; else plumbline_double_error() says why not: 1 the
// system's refusal, 2 the configuration's.
int plumbline_double_serve(int devices, const char* config, const char* socket, const char* const* command,
                           int* code);

// Starts what may start and, if nothing ended by that, moves time to the next completion. 0: nothing can happen any
// more unless something new is called.
int plumbline_double_step();
// Whether polls (cudaEventQuery, cudaStreamQuery, ncclCommGetAsyncError) take a step first; at first they do not.
void plumbline_double_polls_step(int on);
long long plumbline_double_now();  // nanoseconds
// How long the next host function, copy or fill takes; without it, no time.
void plumbline_double_next_takes(long long nanoseconds);

// The process of the rank on the device ends (rules N82, N83): what it has under way is over, and nothing may be called
// for it any more. What the others are told depends on sim.ranks_per_node. 0: done; -1: there is no such device.
int plumbline_double_end_process(int device);

// The number of enqueued things that are not complete.
int plumbline_double_incomplete();
// Findings so far (sizes that do not match, collectives that differ, refused calls, cross-wired connections) as a
// verdict in JSON, once; with the deadlock if asked for and there is one: nothing can happen, and work is left.
const char* plumbline_double_verdict(int with_deadlock);
// How many times an API function of NCCL and of CUDA was called since the reset.
long long plumbline_double_calls();
// The largest number of bytes a device's memory held at one time.
long long plumbline_double_peak(int device);
}
