package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	domain "understudy/deerflow"
	"understudy/id"
	"understudy/internal/cursor"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/deerflow/gateway"
	"understudy/server/internal/web"
)

// Ratings are what users think of runs, and the addresses where they say it under the feedback keys of a run. Who has an address needs no other credentials.
type Ratings struct {
	Store domain.Feedbacks
	// Tokens seals addresses. All servers of a database need the same key.
	Tokens *cursor.Sealer
	Now    func() time.Time
	// May reports whether who acts may write a thread, so that addresses of its runs can be given to them; nil: all may.
	May func(ctx context.Context, t id.Thread) (bool, error)
}

// ratingPath is where feedback is given, with the token of its address.
const ratingPath = "/feedback/tokens/"

// ratingTime is how long an address is valid, as LangSmith's are.
const ratingTime = 3 * time.Hour

// maxRatings bounds a page of feedback, each piece of which has up to domain.MaxScores.
const maxRatings = 100

// rating is what an address allows.
type rating struct {
	Thread  id.Thread `json:"t"`
	Run     id.Run    `json:"r"`
	User    string    `json:"u"`
	Key     string    `json:"k"`
	Expires int64     `json:"e"` // seconds since 1970
}

// path returns the path of an address.
func (r *Ratings) path(allowed rating) string {
	content, _ := json.Marshal(allowed) // texts and a number
	return ratingPath + r.Tokens.Seal(string(content))
}

// read returns what the token of an address allows.
func (r *Ratings) read(token string) (allowed rating, err error) {
	content, ok := r.Tokens.Unseal(token)
	if !ok || json.Unmarshal([]byte(content), &allowed) != nil {
		return allowed, fault.New(fault.NotFound, "There is no such address for feedback")
	}
	if r.Now().Unix() >= allowed.Expires {
		return allowed, fault.New(fault.NotFound, "The address for feedback has expired")
	}
	return allowed, nil
}

// ratingHandlers serve what users think of runs.
type ratingHandlers struct {
	*web.Transport
	ratings *Ratings
	runs    Runs
}

func (h *ratingHandlers) routes(route register) {
	route("POST", ratingPath+"{token}", h.give)
	route("GET", "/threads/{thread_id}/runs/{run_id}/feedback", withRun(h.list))
}

// give sets what the user of an address thinks of its run.
func (h *ratingHandlers) give(c *fiber.Ctx) error {
	c.Set(fiber.HeaderCacheControl, "no-store") // there is no user for whom protectAnswer would
	allowed, err := h.ratings.read(web.Param(c, "token"))
	if err != nil {
		return err
	}
	return h.WithBody(c, func(body []byte) error {
		score, err := compat.GiveFeedback(body)
		if err != nil {
			return err
		}
		f := domain.Feedback{
			ID: string(id.NewRun()), Run: allowed.Run, Thread: allowed.Thread, User: allowed.User, Rating: -1, Comment: score.Comment, CreatedAt: h.ratings.Now(),
			Scores: single(allowed.Key, score.Content),
		}
		if score.Positive {
			f.Rating = 1
		}
		if f, err = h.ratings.Store.GiveFeedback(access.Everything(c.UserContext()), f); err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedback(f))
	})
}

func single(key string, value json.RawMessage) json.RawMessage {
	o := &jsonobj.Object{}
	o.Set(key, value)
	return o.JSON()
}

// list answers with what all users think of a run that the caller can reach.
func (h *ratingHandlers) list(c *fiber.Ctx, t id.Thread, r id.Run) error {
	if _, err := h.runs.Get(c.UserContext(), t, r); err != nil {
		return err
	}
	limit, offset := 10, 0
	for name, v := range map[string]*int{"limit": &limit, "offset": &offset} {
		if given := web.Given(c, name); given != nil {
			var err error
			if *v, err = compat.Limit(*given, name); err != nil {
				return err
			}
		}
	}
	list, err := h.ratings.Store.RunFeedback(c.UserContext(), t, r, min(limit, maxRatings), offset)
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Feedbacks(list))
}

// rated returns f with the addresses for the feedback keys of a run after its end, if it succeeds and can be rated.
func (h *runHandlers) rated(c *fiber.Ctx, x *run.Run, f run.Follower) run.Follower {
	var keys []string
	if h.ratings == nil || x.Thread == "" || x.Kwargs.Temporary || len(x.Kwargs.FeedbackKeys) == 0 || json.Unmarshal(x.Kwargs.FeedbackKeys, &keys) != nil || len(keys) == 0 {
		return f
	}
	scheme, host := h.addressed(c)
	before, _, _ := strings.Cut(c.Path(), "/threads/")
	if before == c.Path() {
		before, _, _ = strings.Cut(c.Path(), "/runs/")
	}
	actor := access.From(c.UserContext())
	return &ratedRun{Follower: f, h: h, run: x, keys: keys, base: scheme + "://" + host + before, ctx: access.With(h.Requests, actor), user: h.raterOf(actor)}
}

// joined is rated for a run that a client joins. As on LangGraph Server one that is over has no addresses, unless the client continues a stream.
func (h *runHandlers) joined(c *fiber.Ctx, f run.Follower) run.Follower {
	of, ok := f.(interface{ Run() *run.Run })
	if !ok || of.Run().Status.Over() && c.Get("Last-Event-Id") == "" {
		return f
	}
	f = h.rated(c, of.Run(), f)
	if r, ok := f.(*ratedRun); ok {
		r.asks = true
	}
	return f
}

// raterOf is whose feedback it is that an actor gives.
func (h *runHandlers) raterOf(actor *access.Actor) string {
	switch {
	case actor != nil:
		return actor.Identity
	case h.gateway: // whose accounts are switched off
		return gateway.InternalUser
	}
	return ""
}

// ratedRun follows a run that can be rated.
type ratedRun struct {
	run.Follower
	h    *runHandlers
	run  *run.Run
	keys []string
	base string          // of addresses
	user string          // whose feedback it is
	ctx  context.Context //nolint:containedctx // who asked
	asks bool            // whether they may write the thread; who starts a run may
	// The run is over; its addresses were sent, or it has none.
	over, done bool
}

// Next implements run.Follower. When ctx ends before the addresses are known, the next call asks for them again.
func (f *ratedRun) Next(ctx context.Context) (records []*bridge.Record, err error) {
	if !f.over {
		records, err = f.Follower.Next(ctx)
		if !errors.Is(err, io.EOF) {
			return records, err
		}
		f.over = true
	}
	if f.done {
		return records, io.EOF
	}
	addresses, err := f.addresses(ctx)
	if err != nil {
		return records, err
	}
	if f.done = true; addresses == nil {
		return records, io.EOF
	}
	return append(records, &bridge.Record{Event: "feedback", Data: addresses, Ephemeral: true}), nil
}

// Result implements run.Follower.
func (f *ratedRun) Result(ctx context.Context) (run.Result, error) {
	result, err := f.Follower.Result(ctx)
	if err != nil || result.Error != nil {
		return result, err
	}
	values := bytes.TrimSpace(result.Values)
	if string(values) == "null" {
		values = []byte("{}")
	}
	if len(values) < 2 || values[0] != '{' { // nowhere to put them
		return result, nil
	}
	addresses, err := f.addresses(ctx)
	if err != nil {
		return run.Result{}, err
	}
	if addresses != nil {
		separator := ","
		if len(bytes.TrimSpace(values[1:len(values)-1])) == 0 {
			separator = ""
		}
		result.Values = slices.Concat(values[:len(values)-1], []byte(separator+`"__feedback__":`), addresses, []byte("}"))
	}
	return result, nil
}

// addresses returns the addresses by key; nil when the run did not succeed, when who asked may not write the thread, or when that is not known. The error is that of ctx.
func (f *ratedRun) addresses(ctx context.Context) (json.RawMessage, error) {
	asking, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	x, err := f.h.runs.Get(asking, f.run.Thread, f.run.ID)
	may := err == nil && x.Status == run.Success
	if may && f.asks && f.h.ratings.May != nil {
		may, err = f.h.ratings.May(asking, f.run.Thread)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !fault.Is(err, fault.NotFound) {
			f.h.Log.WarnContext(ctx, "no addresses for feedback were sent: the run cannot be read", "thread_id", f.run.Thread, "run_id", f.run.ID, "error", err)
		}
		return nil, nil
	}
	if !may {
		return nil, nil
	}
	out, expires := &jsonobj.Object{}, f.h.ratings.Now().Add(ratingTime).Unix()
	for _, key := range f.keys {
		out.SetText(key, f.base+f.h.ratings.path(rating{f.run.Thread, f.run.ID, f.user, key, expires}))
	}
	return out.JSON(), nil
}
