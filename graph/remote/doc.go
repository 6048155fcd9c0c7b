// Package remote runs graphs on an upstream LangGraph Server: one entry {"url", "graph_id"} of a langgraph.json is one Graph.
//
// Threads, runs, queue and streams are this server's own; the upstream only executes. Threads and checkpoints have the same ids there. Every
// checkpoint that a run or an update creates upstream is mirrored into the Saver of the call, with its description, and with errors,
// interrupts and results as writes, so that state, history and transcripts are read here without the upstream. This server is authoritative:
// a run starts from its head, wherever the upstream's head is.
//
// A run is streamed with resumable events. When the connection drops it is joined again after the last event seen; when this server dies,
// the next attempt finds the upstream run by its request id, which is the id of the run here, and joins it from its start.
package remote
