package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// unfinishedError says how a run ended that has no result, and that its graph did not fail: another request ended it, or it is gone.
type unfinishedError struct{ text string }

func (e unfinishedError) Error() string { return e.text }

// runOf returns the run whose stream a response is, which a server names before the first event; "" when it does not.
func runOf(res *http.Response) string {
	before, id := path.Split(res.Header.Get("Content-Location"))
	if !strings.HasSuffix(before, "/runs/") {
		return ""
	}
	return id
}

// settled returns why a run whose stream ended in order has no result; nil when it has one, or waits for an answer. It shows the error of a run that failed
// when its stream had none.
func (r *turn) settled(ctx context.Context) error {
	switch r.status {
	case "interrupted":
		if len(r.waiting) > 0 {
			return nil
		}
		if by := r.stoppedBy(ctx, "interrupt"); by != "" {
			return unfinishedError{fmt.Sprintf("the run was interrupted by another of its thread, %s; %s shows its steps", by, r.api.command("logs "+r.thread+" "+by))}
		}
		return unfinishedError{"the run was cancelled; " + r.api.command("logs "+r.thread) + " shows the steps before it"}
	case "error", "timeout":
		if !r.failed {
			var thread struct {
				Error json.RawMessage `json:"error"`
			}
			_ = r.api.get(ctx, "/threads/"+r.thread, &thread) // without it, the status is what is known
			r.fails(gjson.ParseBytes(thread.Error))
		}
	}
	return nil
}

// fails shows the error of a run.
func (r *turn) fails(failure gjson.Result) {
	r.failed = true
	text := failure.String() // another server may keep a text
	if failure.IsObject() {
		text = failure.Get("error").String() + ": " + failure.Get("message").String()
	}
	r.println(r.paint(red, "✗ "+r.clean(cmp.Or(text, "the run ended with the status "+r.status))))
	r.println(r.paint(dim, "the error as the graph raised it: "+r.api.command("state "+r.thread)+"; the log of the server shows where"))
}

// isMissing reports whether a server does not have what a request names, as the run of a stream that it served. Of a run it says no more than of a route.
func isMissing(err error) bool {
	var refused *statusError
	return errors.As(err, &refused) && !refused.page && refused.status == http.StatusNotFound
}

// vanished explains that a server no longer has the run.
func (r *turn) vanished(ctx context.Context) error {
	thread := r.thread
	if err := r.api.get(ctx, "/threads/"+thread, nil); isMissing(err) {
		r.chat.thread = ""
		return unfinishedError{fmt.Sprintf("the run is gone: its thread %s was deleted", thread)}
	}
	if by := r.stoppedBy(ctx, "rollback"); by != "" {
		return unfinishedError{fmt.Sprintf("the run was rolled back by another of its thread, %s; %s shows its steps", by, r.api.command("logs "+thread+" "+by))}
	}
	return unfinishedError{"the run was rolled back or deleted; " + r.api.command("state "+thread) + " shows what its thread has now"}
}

// stoppedBy returns the run that came to the thread after this one and ended it, by its multitask strategy; "" when none did.
func (r *turn) stoppedBy(ctx context.Context, strategy string) string {
	var newest []struct {
		ID       string `json:"run_id"`
		Strategy string `json:"multitask_strategy"`
	}
	if err := r.api.get(ctx, "/threads/"+r.thread+"/runs?limit=100", &newest); err != nil {
		return ""
	}
	for _, other := range slices.Backward(newest) {
		if other.Strategy == strategy && other.ID > orEmpty(r.id.Load()) { // IDs of runs begin with their time
			return other.ID
		}
	}
	return ""
}

// unknown explains that a stream ended and the server does not say how its run did. It is no error when the graph has answered.
func (r *turn) unknown(broken, refused error) error {
	if broken != nil || r.shown || len(r.kept) > 0 || len(r.waiting) > 0 {
		return r.broken(broken)
	}
	if refused == nil {
		refused = errors.New("it names no run")
	}
	return fmt.Errorf("the stream ended without an answer, and the server does not say how the run ended: %w", refused)
}
