// Package redis is a bridge for several servers, over Redis Streams: records that one publishes reach readers on all of them.
//
// Each thread has one stream, whose ids are the offsets that the publisher assigned. Records wait in a bounded queue; one goroutine sends all of them
// in one pipeline, at once when it is idle. One goroutine reads all streams with subscribers on this server, in one blocking XREAD: the number of
// connections does not depend on the number of readers. When the set of streams changes, a control stream of the server wakes the reader.
//
// Retention, eviction and expiry are as in bridge.Memory, implemented in Redis scripts. The records of a thread are numbered without gaps, so that a
// reader detects missing ones. Then its subscriptions end, their readers subscribe again from the last offset they saw, and Gap reports what was
// lost.
//
// Redis is never the source of truth. While it is unavailable, publishing continues into the queue: tokens are dropped when it is half full, and all
// records when it is full. After a while subscriptions end with bridge.ErrInterrupted. When Redis comes back, the queue is sent, and dropped records
// are a gap. A Redis that lost its data is detected in the same way.
//
// Servers also notify each other of changes that should not wait for the next poll of the database: Signal.
package redis
