// Package remote runs graphs on an upstream LangGraph Server: one entry {"url", "graph_id"} of a langgraph.json is one Graph.
//
// Threads, runs, queue and streams are this server's own; the upstream only executes. A thread has the same id there, so has each
// checkpoint. Every checkpoint that a run or an update makes upstream is mirrored into the Saver of the call, with its description, and with
// errors, interrupts and results as writes: state, history and transcripts are then read here without asking upstream. What is here
// counts: a run starts from the head that this server has, wherever the upstream's head is by then.
//
// A run is streamed with every event resumable. When the connection drops it is joined again behind the last event that was seen; when this
// server dies, the next attempt finds the upstream run by its request id, which is the id of the run here, and joins it from its start.
package remote
