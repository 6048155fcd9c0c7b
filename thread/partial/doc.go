// Package partial keeps what a run streams of its answers until they are saved: when the run is cancelled, times out, fails or loses its
// worker, what its reader saw is not lost. It knows the root `messages` events of the wire and how chunks add up; where the result is
// kept, and when, its callers decide.
//
// Events are kept as they come. They are decoded when the run has ended without success, or when they have become many.
package partial
