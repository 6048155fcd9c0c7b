// Package redis is a bridge for many instances, over Redis Streams: what one publishes, readers of all get.
//
// Each thread has one stream, whose ids are the offsets that the publisher gave. Records wait in a bounded queue; one goroutine sends all that
// waits in one pipeline, at once when it is idle. One goroutine reads all streams that somebody here has subscribed to, in one blocking XREAD:
// the number of connections does not depend on the number of readers. When the set of streams changes, a stream of the instance's own wakes it.
//
// What is kept, what is dropped first and when it expires is as in bridge.Memory; scripts do it where the streams are. Each record of a
// thread carries a number without holes, so that a reader knows when it has missed some: then its subscriptions end, and their readers
// come back from the last offset they saw, and are told by Gap what is not there any more.
//
// Redis is never the truth. While it is away, publishing goes on into the queue, tokens are dropped when that is half full, and everything when it is
// full; subscriptions end with bridge.ErrInterrupted after a while. When it comes back, the queue is sent, and what was dropped is a gap.
// A Redis that lost its memory is noticed in the same way.
//
// Instances also tell each other things that should not wait until they next look into the database: Signal.
package redis
