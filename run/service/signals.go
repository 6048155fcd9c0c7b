package service

import (
	"context"
	"log/slog"
	"time"

	"understudy/run"
)

// signalQueue bounds the signals that wait to be sent. When it is full the rest is dropped: heartbeats find those changes.
const signalQueue = 256

// signals notifies other servers of what happens here. nil: there are no others.
type signals struct {
	shared   run.Shared
	instance string
	local    bool          // other servers do not see the records of runs that are executed here
	timeout  time.Duration // of sending
	log      *slog.Logger
	queue    chan run.Signal
	wakeups  chan run.Signal // capacity 1: the zero Signal, there may be runs to claim, is to be sent
}

func newSignals(shared run.Shared, o *Options) *signals {
	return &signals{
		shared: shared, instance: o.Instance, local: o.Local, timeout: o.Lease / 4, log: o.Logger,
		queue: make(chan run.Signal, signalQueue), wakeups: make(chan run.Signal, 1),
	}
}

// signal queues one to be sent. It does not block.
func (s *signals) signal(sig run.Signal) {
	if s == nil {
		return
	}
	c := s.queue
	if sig == (run.Signal{}) {
		c = s.wakeups // one is as good as many
	}
	select {
	case c <- sig:
	default:
	}
}

// tellAll sends signals until ctx ends, and then those that wait.
func (s *signals) tellAll(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		var sig run.Signal
		select {
		case sig = <-s.queue:
		case sig = <-s.wakeups:
		case <-ctx.Done():
			select {
			case sig = <-s.queue:
			case sig = <-s.wakeups:
			default:
				return
			}
		}
		told := []run.Signal{sig}
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
			s.log.WarnContext(ctx, "other servers could not be notified; they notice at their next heartbeat", "error", err)
		}
		cancel()
	}
}

// ended notifies other servers that a run is over, when they cannot see it in its stream.
func (s *signals) ended(r *run.Run) {
	if s != nil && s.local {
		s.signal(run.Signal{Thread: r.Thread, Run: r.ID, Ended: s.instance})
	}
}
