// Package record is the understanding half of the proxy: it learns threads of an upstream server from the answers that pass, keeps their
// messages as events and transcripts, and shows them where clients read messages. It knows no sockets: whoever forwards calls hands it
// bodies and events, and does its requests.
//
// What it records are checkpoints, from snapshots as the upstream shows them: each only after its parent, once. What an answer lacks is
// fetched from the upstream's history, with the credentials of the caller who needs it. A thread is known by its `created_at`: with
// another one it is another thread, and what was recorded goes.
//
// Nothing here makes a call fail. What cannot be recorded or shown passes as it is, is logged, and is tried again by the next read.
package record
