package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/server/internal/web"
)

// maxSubscriptions bounds the subscriptions of a socket: each event is compared with all of them.
const maxSubscriptions = 64

// socket is event streaming over a WebSocket: a client sends commands and receives their answers, and the events of one thread that its subscriptions select.
//
// Two goroutines serve it. One reads commands, and executes those about runs. The other owns the follower and the subscriptions: it sends events, and between
// them does what the first one asks it to. Nothing is queued for a slow client: when it does not read, the follower is not read either, and the bridge bounds
// what waits there.
type socket struct {
	*web.Websocket
	server *protocolHandlers
	ctx    context.Context //nolint:containedctx // of the request, with its user: it lives as long as the socket
	cancel context.CancelCauseFunc
	thread id.Thread
	by     caller
	req    *web.Request
	bound  bool // a run was made here; used by the reader

	withdrawn func(ctx context.Context) bool // whether the credentials of the client were; nil: they cannot be

	asked chan func()   // for the goroutine that sends
	over  chan struct{} // closed when that has ended

	mu   sync.Mutex
	poke context.CancelCauseFunc // ends its wait for events

	// Of the goroutine that sends.
	follower      protocol.Follower // nil: nothing is followed yet
	subscriptions []subscription
	sent          int64 // seq of the last event
	events        int
}

// subscription is what a client subscribed to.
type subscription struct {
	id     string
	filter protocol.Filter
}

// errAsked ends a wait for events: the reader has asked the goroutine that sends to do something.
var errAsked = errors.New("asked by the reader")

// socket opens a WebSocket for a thread.
func (h *protocolHandlers) socket(c *fiber.Ctx) error {
	if err := web.Handshake(c, h.allows); err != nil {
		return err
	}
	t, err := compat.ThreadID(web.Param(c, "thread_id"))
	if err != nil {
		return err
	}
	if !h.Slots.Has(1) { // serve takes it
		return web.ErrManyStreams
	}
	req, ctx := web.Of(c), c.UserContext()
	req.Streamed = true
	k := &socket{server: h, thread: t, req: req, by: caller{string(t), req.ID, h.Configurable(c), req.Made, nil}, asked: make(chan func(), 1), over: make(chan struct{})}
	if h.Follow != nil {
		k.withdrawn = h.Follow(c)
	}
	h.Upgrade(c, func(w *web.Websocket, err error) {
		if err != nil {
			h.Done(req, http.StatusSwitchingProtocols, web.Ended(err))
			return
		}
		k.Websocket = w
		k.ctx, k.cancel = context.WithCancelCause(ctx)
		k.serve()
	})
	return nil
}

// serve serves the socket to its end.
func (k *socket) serve() {
	s := k.Transport
	var err error
	defer k.cancel(nil)
	if !s.Slots.Take(1) { // taken since the handshake
		k.Close(&web.CloseError{Code: web.StatusTryAgainLater, Text: web.ErrManyStreams.Error()})
		k.Await()
		s.Done(k.req, http.StatusSwitchingProtocols, web.Ended(web.ErrManyStreams))
		return
	}
	s.Metrics.Streams.Inc()
	defer func() {
		s.Metrics.Streams.Dec()
		s.Slots.Give(1)
		why := web.Ended(err)
		s.Metrics.Ended.WithLabelValues(why).Inc()
		s.Metrics.Events.Add(float64(k.events))
		s.Done(k.req, http.StatusSwitchingProtocols, why)
	}()
	if !s.Lingering.Enter() { // the server does not wait for connections that fasthttp has handed over
		err = ErrShutdown
		k.Close(k.farewell(err))
		return
	}
	defer s.Lingering.Leave()
	defer context.AfterFunc(s.Streaming, func() {
		k.cancel(context.Cause(s.Streaming))
		k.Interrupt()
	})()
	sent := make(chan error, 1)
	go func() { sent <- k.guard("send", k.follow) }()
	received := k.guard("read", k.receive)
	k.cancel(received)
	err = <-sent
	if k.follower != nil {
		k.follower.Close()
	}
	if why := k.farewell(err); why != nil {
		k.Close(why)
		k.Await()
	}
}

// guard turns a panic into an error: fasthttp would end the process.
func (k *socket) guard(what string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			k.Transport.Log.Error("panic in a WebSocket", "request_id", k.req.ID, "goroutine", what, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", web.ErrPanic, p)
			k.cancel(err)
			k.Interrupt()
		}
	}()
	return do()
}

// farewell returns what a client learns of the end of its socket; nil: it has left.
func (k *socket) farewell(err error) *web.CloseError {
	var known *web.CloseError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, web.ErrLeft), errors.Is(err, web.ErrStuck):
		return nil
	case errors.Is(err, web.ErrWithdrawn):
		return withdrawn
	case errors.Is(err, ErrShutdown), errors.Is(err, bridge.ErrClosed):
		return &web.CloseError{Code: web.StatusServiceRestart, Text: "the server shuts down; connect again"}
	case errors.Is(err, io.EOF):
		return &web.CloseError{Code: ws.StatusInternalServerError, Text: "thread stream ended: the thread was deleted"}
	case errors.Is(err, bridge.ErrInterrupted):
		// Clients read an error without an id as one of the connection.
		at := strconv.FormatInt(k.sent, 10)
		refused := &compat.CommandError{Code: compat.UnknownError, Message: "Events came faster than they were read, or their stream was interrupted. " +
			"Connect again, and send subscription.reconnect with since " + at + "."}
		_ = k.Text(compat.AppendCommandErrorSeen(nil, &compat.Command{}, refused, k.sent))
		return &web.CloseError{Code: web.StatusTryAgainLater, Text: "interrupted; reconnect with since " + at}
	case !errors.Is(err, web.ErrPanic):
		k.Transport.Failures.Add("stream failed", k.req, err)
	}
	return &web.CloseError{Code: ws.StatusInternalServerError, Text: "Internal Server Error"}
}

// receive reads commands until the client leaves.
func (k *socket) receive() error {
	for {
		message, release, err := k.Read()
		if err != nil {
			return err
		}
		if k.isWithdrawn() {
			err = web.ErrWithdrawn
		} else {
			err = k.command(message)
		}
		release()
		if err != nil {
			return err
		}
	}
}

func (k *socket) isWithdrawn() bool { return k.withdrawn != nil && k.withdrawn(k.ctx) }

var errNoJSON = &compat.CommandError{Code: compat.InvalidArgument, Message: "Protocol commands must be valid JSON."}

// command executes a command and answers it.
func (k *socket) command(message []byte) error {
	cmd, err := compat.DecodeCommand(message)
	if err != nil {
		refused := errNoJSON
		_ = errors.As(err, &refused)
		return k.Text(compat.AppendCommandError(nil, &cmd, refused))
	}
	switch cmd.Method {
	case "subscription.subscribe", "subscription.reconnect":
		return k.ask(func() error { return k.subscribe(&cmd) })
	case "subscription.unsubscribe":
		return k.ask(func() error { return k.unsubscribe(&cmd) })
	case "agent.getTree":
		return k.ask(func() error { return k.tree(&cmd) })
	case "input.respond":
		if refused := k.misplaced(&cmd); refused != nil {
			return k.Text(compat.AppendCommandError(nil, &cmd, refused))
		}
	}
	// Clients take events up to this seq for history: it is of the time before the run, which may have sent some when the answer goes out.
	seen := int64(0)
	if err := k.ask(func() error { seen = k.sent; return nil }); err != nil {
		return err
	}
	result, err := k.server.execute(k.ctx, k.by, &cmd)
	if err != nil {
		return k.Text(compat.AppendCommandError(nil, &cmd, k.refusal(err)))
	}
	k.bound = true
	return k.Text(compat.AppendCommandSuccess(nil, &cmd, result, seen))
}

// refusal returns an error as the client sees it. On a socket that includes those of the server, which have a status over HTTP.
func (k *socket) refusal(err error) *compat.CommandError {
	if refused := commandError(err); refused != nil {
		return refused
	}
	status, text, worth := web.Explain(err)
	if worth && k.ctx.Err() == nil {
		k.Transport.Failures.Add("command failed", k.req, err)
	}
	return &compat.CommandError{Code: compat.UnknownError, Message: strconv.Itoa(status) + ": " + text}
}

// misplaced refuses answers that name another namespace than the one in which this socket has seen the interrupt.
func (k *socket) misplaced(cmd *compat.Command) (refused *compat.CommandError) {
	_, responses, err := cmd.RunResponse()
	if err != nil {
		return nil // execute says so
	}
	_ = k.ask(func() error {
		for _, r := range responses {
			if k.follower == nil || r.Namespace == nil {
				continue
			}
			if in, ok := k.follower.Asked(r.Interrupt); ok && !slices.Equal(in, r.Namespace) {
				refused = &compat.CommandError{Code: compat.NoSuchInterrupt, Message: "Interrupt namespace does not match the pending interrupt."}
			}
		}
		return nil
	})
	return refused
}

// ask does something in the goroutine that sends, and returns when it is done.
func (k *socket) ask(do func() error) error {
	done := make(chan error, 1)
	select {
	case k.asked <- func() { done <- do() }:
	case <-k.over: // and what was asked before is still there
		return context.Cause(k.ctx)
	}
	k.mu.Lock()
	if k.poke != nil {
		k.poke(errAsked)
	}
	k.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-k.over:
		return context.Cause(k.ctx)
	}
}

// follow sends events, and does what is asked, until the socket ends.
func (k *socket) follow() error {
	defer close(k.over)
	err := k.sendEvents()
	k.cancel(err)
	k.Interrupt()
	return err
}

func (k *socket) sendEvents() error {
	every := web.PingBeats * k.Transport.Heartbeat
	for beat := time.Now().Add(every); ; beat = beat.Add(every) {
		err := k.sendUntil(beat)
		if !errors.Is(err, web.ErrBeat) {
			return err
		}
		if k.isWithdrawn() {
			return web.ErrWithdrawn
		}
		if err := k.Frame(ws.OpPing, nil); err != nil {
			return err
		}
	}
}

// sendUntil sends events until the next ping is due. One context serves all waits of the period, unless something is asked.
func (k *socket) sendUntil(beat time.Time) error {
	for {
		wait, cancel := context.WithCancelCause(k.ctx)
		period, stop := context.WithDeadlineCause(wait, beat, web.ErrBeat)
		k.mu.Lock()
		k.poke = cancel
		k.mu.Unlock()
		err := k.sendWhile(period)
		stop()
		cancel(nil)
		if !errors.Is(err, errAsked) {
			return err
		}
	}
}

func (k *socket) sendWhile(period context.Context) error {
	for {
		select {
		case do := <-k.asked:
			do()
			continue
		default:
		}
		switch {
		case k.ctx.Err() != nil:
			return context.Cause(k.ctx)
		case period.Err() != nil:
			return context.Cause(period)
		case k.follower == nil:
			<-period.Done()
			continue
		}
		events, err := k.follower.Next(period)
		if err := k.show(events); err != nil {
			return err
		}
		if err != nil && period.Err() == nil {
			return err
		}
	}
}

// show sends events.
func (k *socket) show(events []protocol.Event) error {
	if len(events) == 0 {
		return nil
	}
	k.events += len(events)
	err := k.Send(func(text func([]byte)) {
		for i := range events {
			text(events[i].Data)
		}
	})
	if err == nil {
		for i := range events {
			k.sent = max(k.sent, events[i].Seq) // a replay goes back, and what is of the connection has none
		}
	}
	return err
}

// subscribe adds a subscription, and sends what it selects of what has been: events of the current run, or with subscription.reconnect all after a seq.
func (k *socket) subscribe(cmd *compat.Command) error {
	seen := k.sent
	filter, err := cmd.Filter()
	if err == nil && len(k.subscriptions) >= maxSubscriptions {
		err = errManySubscriptions
	}
	name := uuid.NewString()
	if err == nil && cmd.Method == "subscription.subscribe" {
		filter.Since, err = k.current()
	} else if given := cmd.Subscription(); given != "" {
		name = given
	}
	replayed := 0
	if err == nil {
		replayed, err = k.replay(filter)
	}
	if err != nil {
		if k.follower != nil {
			k.follower.Select(k.filters()...) // not what is refused
		}
		return k.refuse(cmd, err, seen)
	}
	k.drop(name)
	k.subscriptions = append(k.subscriptions, subscription{name, filter})
	k.follower.Select(k.filters()...)
	result := jsonobj.AppendText([]byte(`{"subscription_id":`), name)
	result = strconv.AppendInt(append(result, `,"replayed_events":`...), int64(replayed), 10)
	return k.Text(compat.AppendCommandSuccess(nil, cmd, append(result, '}'), seen))
}

var errManySubscriptions = &compat.CommandError{
	Code: compat.InvalidArgument, Message: "A connection has at most " + strconv.Itoa(maxSubscriptions) + " subscriptions; send subscription.unsubscribe.",
}

// current returns the seq before the first event of the run that began last; 0 when there is none.
func (k *socket) current() (int64, error) {
	const recent = 100 // more than that wait before one begins
	runs, err := k.server.runs.List(k.ctx, k.thread, run.Query{Limit: recent})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return 0, err
	}
	for _, r := range runs { // the newest first
		if !r.StartedAt.IsZero() {
			return r.StartedAt.UnixMilli()*1000 - 1, nil
		}
	}
	return 0, nil
}

// replay sends what a filter selects of what has been, up to where this socket is, and returns how many events those are. The first one follows the thread.
func (k *socket) replay(filter protocol.Filter) (replayed int, err error) {
	past, err := k.server.runs.FollowEvents(k.ctx, k.thread, filter)
	if err != nil {
		return 0, err
	}
	end := int64(math.MaxInt64)
	if k.follower == nil {
		k.follower = past
	} else {
		end = k.follower.Last()
		defer past.Close()
	}
	for past.Last() < end {
		events, err := past.Next(k.ctx)
		if err != nil {
			return replayed, err
		}
		if len(events) == 0 {
			return replayed, nil
		}
		if gap := events[0].Gap; gap != nil {
			return replayed, &compat.CommandError{Code: protocol.GapCode, Message: gap.Message(), Gap: gap}
		}
		if behind := slices.IndexFunc(events, func(e protocol.Event) bool { return e.Seq > end }); behind >= 0 {
			events = events[:behind] // the rest comes to all subscriptions
		}
		replayed += len(events)
		if err := k.show(events); err != nil {
			return replayed, err
		}
	}
	return replayed, nil
}

// filters returns those of the subscriptions.
func (k *socket) filters() []protocol.Filter {
	filters := make([]protocol.Filter, len(k.subscriptions))
	for i := range k.subscriptions {
		filters[i] = k.subscriptions[i].filter
		filters[i].Since = 0 // which is behind
	}
	return filters
}

// drop removes a subscription, if it is there.
func (k *socket) drop(name string) bool {
	before := len(k.subscriptions)
	k.subscriptions = slices.DeleteFunc(k.subscriptions, func(s subscription) bool { return s.id == name })
	return len(k.subscriptions) < before
}

func (k *socket) unsubscribe(cmd *compat.Command) error {
	name, err := cmd.Unsubscribe()
	if err == nil && !k.drop(name) {
		err = compat.UnknownSubscription(web.Bounded(name, web.MaxReason))
	}
	if err != nil {
		return k.refuse(cmd, err, k.sent)
	}
	k.follower.Select(k.filters()...)
	return k.Text(compat.AppendCommandSuccess(nil, cmd, json.RawMessage(`{}`), k.sent))
}

// tree answers with the graphs of the current run.
func (k *socket) tree(cmd *compat.Command) error {
	seen := k.sent
	if k.follower == nil && k.bound {
		if _, err := k.replay(protocol.Filter{}); err != nil {
			return k.refuse(cmd, err, seen)
		}
	}
	var tree []byte
	if k.follower != nil {
		tree = k.follower.Tree()
	}
	if tree == nil {
		return k.refuse(cmd, errNoActiveRun, seen)
	}
	return k.Text(compat.AppendCommandSuccess(nil, cmd, append(append([]byte(`{"tree":`), tree...), '}'), seen))
}

// refuse answers that a command of the connection is refused.
func (k *socket) refuse(cmd *compat.Command, err error, seen int64) error {
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	refused := k.refusal(err)
	if seen == 0 { // no run is followed
		return k.Text(compat.AppendCommandError(nil, cmd, refused))
	}
	return k.Text(compat.AppendCommandErrorSeen(nil, cmd, refused, seen))
}
