package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// delayTime bounds each request by which a command asks why it waits.
const delayTime = 3 * time.Second

// waited is what a command waits for: a request, or a run.
type waited struct {
	assistant   string // its ID; "": none, or not known
	thread, run string // "": the command waits for another answer; with a thread alone for a run whose ID the server has not sent yet
}

// whyWait returns why the server does not continue with what a command waits for, and what to do; "" when it finds no reason, as with a graph that takes its time.
// A server that is not reached at all is left to patiently.
func (c *client) whyWait(ctx context.Context, w waited) string {
	failed, remarks, err := c.failedChecks(ctx)
	switch {
	case ctx.Err() != nil, absent(err):
		return ""
	case err != nil:
		return "the server does not say whether it is ready (" + err.Error() + "): see its log, and that it still runs"
	}
	var reasons []string
	for _, f := range failed {
		text := f.String()
		if f.graphs() {
			why := c.brokenGraph(ctx, w.assistant)
			if why == "" && f.name == "graphs" {
				continue // it is another one
			}
			text = strings.TrimSuffix(text+": "+why, ": ")
		}
		reasons = append(reasons, text)
	}
	if len(reasons) > 0 {
		return "the server is not ready: " + strings.Join(reasons, "; ") + "\n  its log shows what to do; so does understudy doctor, in the folder of its langgraph.json"
	}
	if w.run == "" && w.thread != "" {
		w.run = c.newestPending(ctx, w.thread)
	}
	why := ""
	if w.run != "" {
		why = c.whyQueued(ctx, w)
	}
	if why == "" && len(remarks) > 0 {
		return strings.Join(remarks, "; ")
	}
	return why
}

// newestPending returns the run of a thread that was created last of those that have not begun; "" when there is none. A server answers a stream of one with
// the first record.
func (c *client) newestPending(ctx context.Context, thread string) string {
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	var runs []struct {
		ID string `json:"run_id"`
	}
	if err := c.get(ctx, "/threads/"+pathSegment(thread)+"/runs?limit=1&status=pending", &runs); err != nil || len(runs) == 0 {
		return ""
	}
	return runs[0].ID
}

// activeOn returns the run that a thread executes, or else one that waits; run is "" when there is none.
func (c *client) activeOn(ctx context.Context, thread string) (w waited) {
	for _, status := range slices.Backward(activeStatuses) { // the running one first
		var runs []struct {
			ID        string `json:"run_id"`
			Assistant string `json:"assistant_id"`
		}
		if err := c.get(ctx, "/threads/"+pathSegment(thread)+"/runs?limit=1&status="+status, &runs); err == nil && len(runs) > 0 {
			return waited{assistant: runs[0].Assistant, thread: thread, run: runs[0].ID}
		}
	}
	return waited{}
}

// orEmpty is what a pointer leads to, "" without one.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// check is a check of GET /readyz that failed.
type check struct{ name, text string }

// graphs reports whether it is a check of the graphs that the server has in worker processes.
func (f check) graphs() bool { return f.name == "workers" || f.name == "graphs" }

func (f check) String() string {
	switch text := strings.TrimSuffix(f.text, "; see the log"); {
	case f.name == "starting":
		return "it is starting"
	case f.name == "draining":
		return "it is shutting down"
	case text == "":
		return "the check of " + f.name + " failed"
	case f.graphs():
		return text
	default:
		return f.name + ": " + text
	}
}

// failedChecks returns the checks of GET /readyz that failed, and what others say although they pass; none of servers that have no such route.
func (c *client) failedChecks(ctx context.Context) (failed []check, remarks []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, delayTime, fmt.Errorf("no answer within %s", delayTime))
	defer cancel()
	res, err := c.send(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return nil, nil, causeOf(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return nil, nil, causeOf(ctx, err)
	}
	gjson.GetBytes(body, "checks").ForEach(func(name, result gjson.Result) bool {
		text := result.String()
		if text, bad := strings.CutPrefix(text, "failed"); bad {
			failed = append(failed, check{name.String(), strings.TrimPrefix(text, ": ")})
		} else if remark, has := strings.CutPrefix(text, "ok: "); has {
			remarks = append(remarks, remark)
		}
		return true
	})
	return failed, remarks, nil
}

func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// brokenGraph returns why the graph of an assistant cannot be used; "" when it can, or is not known.
func (c *client) brokenGraph(ctx context.Context, assistant string) string {
	if assistant == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	err := c.get(ctx, "/assistants/"+pathSegment(assistant)+"/schemas", nil)
	var refused *statusError
	switch {
	case errors.As(err, &refused):
		return refused.detail
	case ctx.Err() != nil:
		return "its graph is not imported yet"
	}
	return ""
}

// whyQueued returns why a run has not begun.
func (c *client) whyQueued(ctx context.Context, w waited) string {
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	var run struct {
		Status string `json:"status"`
	}
	path := "/threads/" + pathSegment(w.thread) + "/runs"
	if err := c.get(ctx, path+"/"+pathSegment(w.run), &run); err != nil || run.Status != "pending" {
		return ""
	}
	var others []struct {
		ID      string `json:"run_id"`
		Status  string `json:"status"`
		Created string `json:"created_at"`
	}
	if err := c.get(ctx, path+"?status=running", &others); err == nil {
		for _, o := range others {
			if o.Status == "running" && o.ID != w.run {
				return fmt.Sprintf("the run waits for another of its thread, %s, which began %s; %s shows its steps", o.ID, ago(o.Created, time.Now()), c.command("logs "+w.thread+" "+o.ID))
			}
		}
	}
	jobs, known := c.gauges(ctx, "understudy_jobs", "understudy_jobs_used")
	switch {
	case !known:
		return "the run waits in the queue of the server; its log may say why"
	case jobs[0] == 0:
		return "the run waits in the queue: this server executes none (--concurrency 0); start understudy worker with its database, or see that one runs"
	case jobs[1] >= jobs[0]:
		return fmt.Sprintf("the run waits in the queue: the server executes %d runs at once, and as many are running; it begins when one ends, or raise --concurrency of the server", jobs[0])
	}
	return "the run waits in the queue, although the server could execute more; see the limit of its graph (concurrency in langgraph.json, --graph-concurrency), and the log of the server"
}

// gauges returns numbers of GET /metrics; known is false when one is missing there.
func (c *client) gauges(ctx context.Context, names ...string) (values []int, known bool) {
	res, err := c.open(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, false
	}
	defer res.Body.Close()
	found := map[string]int{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if name, text, ok := strings.Cut(lines.Text(), " "); ok && slices.Contains(names, name) {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				found[name] = int(v)
			}
		}
	}
	for _, name := range names {
		values = append(values, found[name])
	}
	return values, len(found) == len(names)
}
