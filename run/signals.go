package run

import (
	"context"
	"log/slog"
	"time"

	"understudy/id"
)

// Signal is what instances tell each other, so that it is not found out only at the next look into the database, which is what counts. The
// zero Signal: there may be runs to claim.
type Signal struct {
	Thread id.Thread // it was deleted, if no run is named
	Run    id.Run    // its cancel was asked for, or it has ended
	Ended  string    // the instance that wrote the end of the run
}

// signalQueue bounds the signals that wait to be told. When it is full the rest is left out: heartbeats find it.
const signalQueue = 256

// signals tells other servers of what happens here. nil: there are no others.
type signals struct {
	shared   Shared
	instance string
	local    bool          // other servers do not see the records of runs that are executed here
	timeout  time.Duration // of telling
	log      *slog.Logger
	queue    chan Signal
	offers   chan Signal // capacity 1: the zero Signal is to be told
}

func newSignals(shared Shared, o *Options) *signals {
	return &signals{
		shared: shared, instance: o.Instance, local: o.Local, timeout: o.Lease / 4, log: o.Logger,
		queue: make(chan Signal, signalQueue), offers: make(chan Signal, 1),
	}
}

// signal hands one over to be told. It does not block.
func (s *signals) signal(sig Signal) {
	if s == nil {
		return
	}
	c := s.queue
	if sig == (Signal{}) {
		c = s.offers // many are as good as one
	}
	select {
	case c <- sig:
	default:
	}
}

// tellAll tells signals until ctx ends, and then those that wait.
func (s *signals) tellAll(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		var sig Signal
		select {
		case sig = <-s.queue:
		case sig = <-s.offers:
		case <-ctx.Done():
			select {
			case sig = <-s.queue:
			case sig = <-s.offers:
			default:
				return
			}
		}
		told := []Signal{sig}
	more:
		for len(told) < cap(s.queue) {
			select {
			case sig = <-s.queue:
				told = append(told, sig)
			default:
				break more
			}
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		if err := s.shared.Tell(limited, told...); err != nil {
			s.log.WarnContext(ctx, "other instances could not be told; they find out by themselves", "error", err)
		}
		cancel()
	}
}

// ended tells other instances that a run is over, when they cannot see it in its stream.
func (s *signals) ended(r *Run) {
	if s != nil && s.local {
		s.signal(Signal{Thread: r.Thread, Run: r.ID, Ended: s.instance})
	}
}
