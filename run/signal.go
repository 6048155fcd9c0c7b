package run

import "understudy/id"

// Signal notifies other servers of a change, so that they need not wait for their next look into the database, which alone is authoritative. The
// zero Signal: there may be runs to claim.
type Signal struct {
	Thread id.Thread // it was deleted, if no run is named
	Run    id.Run    // its cancel was requested, or it has ended
	Ended  string    // the instance that wrote the end of the run
}
