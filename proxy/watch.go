package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"understudy/internal/loop"
)

// startUpstream is what an operator can do about an upstream that does not respond.
const startUpstream = "start it, or correct --upstream; clients get 502 until it responds"

// wakeUpstream is what an operator can do about an upstream that accepts connections and does not answer.
const wakeUpstream = "look at the log of the upstream, and that --upstream names it; calls wait until it answers or their clients give up, and get 502 when no connection is made within 10s"

// How long the upstream may be silent in a check until that is logged, and until the check ends.
const (
	quietFor  = 2 * time.Second
	checkTime = 5 * time.Second
)

// repairUpstream is what an operator can do about an upstream whose check fails.
const repairUpstream = "see the log of the upstream, and that --upstream names it and not a gateway without a backend; clients get its answers"

// Watch checks at an interval whether the upstream answers, until ctx ends, and logs changes: clients see 502 while it is down, and the operator
// should see why. Any answer counts as one, and one that a LangGraph Server would not give is reported too.
func (u *Upstream) Watch(ctx context.Context, every time.Duration, log *slog.Logger) error {
	down, strange, failing, looped := up, false, false, false
	for {
		asking, cancel := context.WithTimeout(ctx, checkTime)
		u.back.Store(false)
		stop := loop.Repeat(quietFor, checkTime, func() { down = u.logSilence(log, down) })
		status, _, answer, err := u.Ask(asking, nil, http.MethodGet, "/ok", nil)
		stop()
		u.keeps.Store(err == nil && status == http.StatusOK && !foreign(status, answer) && u.isUnderstudy(asking))
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			down = u.logSilence(log, down)
		case err != nil && down != failed:
			down = failed
			log.Warn("upstream does not respond", "upstream", u.String(), "error", err, "fix", startUpstream)
		case err == nil && down != up:
			down = up
			log.Info("the upstream answers", "upstream", u.String())
		}
		// After an error, too: the way back may have ended, and then calls get 502.
		was := looped
		looped = u.back.Load()
		if u.looped.Store(looped); looped && !was {
			log.Error("the upstream leads back to this proxy; calls get 508", "upstream", u.String(), "fix", "name the LangGraph Server with --upstream, not the address of a proxy")
		}
		if err == nil && !looped {
			was := failing
			switch failing = status >= http.StatusInternalServerError; {
			case failing && !was:
				log.Warn("upstream answers with an error", "upstream", u.String(), "asked", "/ok", "status", status, "fix", repairUpstream)
			case was && !failing:
				log.Info("the upstream's errors ended", "upstream", u.String(), "asked", "/ok", "status", status)
			}
		}
		if err == nil {
			was := strange
			if strange = foreign(status, answer); strange && !was {
				log.Warn("the upstream does not look like a LangGraph Server; see that --upstream names one, with its path if it has one (/ok has to be below it)",
					"upstream", u.String(), "asked", "/ok", "status", status)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// outage is what the last check of the upstream has found.
type outage int

const (
	up     outage = iota
	silent        // it does not answer, and calls wait
	failed        // calls get 502
)

// logSilence logs that the upstream does not answer, unless that is what the check before has found.
func (u *Upstream) logSilence(log *slog.Logger, before outage) outage {
	if before != silent {
		log.Warn("upstream does not answer; calls wait", "upstream", u.String(), "asked", "/ok", "after", quietFor.String(), "fix", wakeUpstream)
	}
	return silent
}

// isUnderstudy reports whether the upstream, or the one behind a proxy there, is an understudy.
func (u *Upstream) isUnderstudy(ctx context.Context) bool {
	status, _, answer, err := u.Ask(ctx, http.Header{}, http.MethodGet, "/info", nil) // no check of /ok, so without its header
	return err == nil && status == http.StatusOK && gjson.ValidBytes(answer) && gjson.GetBytes(answer, "understudy_version").Type == gjson.String
}

// foreign reports whether an answer to /ok is not one of a LangGraph Server. One that asks for credentials, or fails, says nothing.
func foreign(status int, answer []byte) bool {
	switch {
	case status >= 500, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return false
	case status != http.StatusOK:
		return true
	}
	return !gjson.ValidBytes(answer) || !gjson.GetBytes(answer, "ok").Exists()
}
