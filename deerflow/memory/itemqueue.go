package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"understudy/store"
)

// ItemQueue is a Queue in the store, which all servers of the database share. No user has a namespace that begins as its own.
type ItemQueue struct {
	Store *store.Service
	User  func(id string) string // the label of a user
	Now   func() time.Time
	Log   *slog.Logger
	// Holder names the learner, if there is only one at a time: after a restart it continues at once. "": it gets a name of its own.
	Holder string
	// Before is the queue of before there was this one, of which what waits is moved; nil: there is none. While servers are replaced, those of before write there still.
	Before *Folder

	once   sync.Once
	failed string // why something was not moved the last time
}

const (
	queueLabel = "understudy:memory-queue"
	turnKey    = "turn"
)

// leased is how long a learner that was killed keeps others from the queue.
const leased = 20 * time.Second

// Of a look at the queue: how much is read at once, and how often. The store has the newest first.
const (
	listedAtOnce = 1000
	maxLists     = 100
)

// Put implements Queue.
func (q *ItemQueue) Put(ctx context.Context, subject, name string, text []byte) error {
	return q.Store.Put(ctx, item(q.namespace(subject), name, text))
}

// putNewer is Put, unless what waits there is as new.
func (q *ItemQueue) putNewer(ctx context.Context, w *waiting, text []byte) error {
	e := Entry{Name: w.name(), namespace: q.namespace(w.User)}
	for {
		was, err := q.Load(ctx, e)
		if err != nil {
			return err
		}
		var there waiting
		if was == nil {
			was = &Document{}
		} else if json.Unmarshal(was.Text, &there) == nil && !w.At.After(there.At) {
			return nil
		}
		if done, err := q.Swap(ctx, e, was, text); done || err != nil {
			return err
		}
	}
}

// namespace is where conversations of a subject wait.
func (q *ItemQueue) namespace(subject string) []string {
	user, agent := Of(subject)
	if agent == "" {
		return []string{queueLabel, "waiting", q.User(user)}
	}
	return []string{queueLabel, "waiting", q.User(user), agent}
}

// List implements Queue, for one caller at a time.
func (q *ItemQueue) List(ctx context.Context) (list []Entry, err error) {
	if q.Before != nil {
		n, err := q.Before.moveTo(ctx, q)
		q.notMoved(ctx, err)
		if n > 0 {
			q.Log.InfoContext(ctx, "conversations that wait for the memory were moved into the store", "conversations", n, "folder", q.Before.Dir)
		}
	}
	for n := range maxLists {
		page, err := q.Store.Search(ctx, store.Search{Prefix: []string{queueLabel, "waiting"}, Limit: listedAtOnce, Offset: n * listedAtOnce, Bytes: 1}, &no)
		if err != nil {
			return nil, err
		}
		for _, i := range page {
			list = append(list, Entry{Name: i.Key, At: i.UpdatedAt, namespace: i.Namespace})
		}
		if len(page) < listedAtOnce {
			break
		}
	}
	return list, nil
}

// notMoved logs why something of the folder was not moved, when that is another reason than before: it is tried again each time.
func (q *ItemQueue) notMoved(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != q.failed && ctx.Err() == nil {
		q.Log.WarnContext(ctx, "conversations of an earlier release that wait for the memory are not moved into the store", "folder", q.Before.Dir, "error", err,
			"fix", "make the folder readable and writable for this user; delete files that are not to be learned")
	}
	q.failed = text
}

// Load implements Queue.
func (q *ItemQueue) Load(ctx context.Context, e Entry) (*Document, error) {
	return load(ctx, q.Store, e.namespace, e.Name)
}

// Swap implements Queue.
func (q *ItemQueue) Swap(ctx context.Context, e Entry, was *Document, text []byte) (bool, error) {
	return q.Store.Swap(ctx, item(e.namespace, e.Name, text), was.item)
}

// turn is who works on the queue, and until when unless it says so again.
type turn struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

// Hold implements Queue.
func (q *ItemQueue) Hold(ctx context.Context) (held context.Context, release func(), err error) {
	q.once.Do(func() { q.Holder = cmp.Or(q.Holder, rand.Text()) })
	if mine, err := q.take(ctx); err != nil || !mine {
		return nil, nil, err
	}
	held, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { q.renew(held, cancel) })
	release = func() {
		cancel()
		renewing.Wait()
		q.leave(context.WithoutCancel(ctx))
	}
	return held, release, nil
}

// now returns who works on the queue.
func (q *ItemQueue) now(ctx context.Context) (t turn, i *store.Item, err error) {
	if i, err = q.Store.Get(ctx, []string{queueLabel}, turnKey, &no); err == nil && i != nil {
		_ = json.Unmarshal(i.Value, &t) // else none does
	}
	return t, i, err
}

// take takes the turn, or takes it again; mine is false while another learner has it.
func (q *ItemQueue) take(ctx context.Context) (mine bool, err error) {
	t, was, err := q.now(ctx)
	if err != nil || t.Holder != q.Holder && t.Until.After(q.Now()) {
		return false, err
	}
	text, err := json.Marshal(turn{q.Holder, q.Now().Add(leased).UTC()})
	if err != nil {
		return false, err
	}
	return q.Store.Swap(ctx, item([]string{queueLabel}, turnKey, text), was)
}

// renew takes the turn again and again until ctx ends, and ends the work when it is lost.
func (q *ItemQueue) renew(ctx context.Context, lost func()) {
	tick := time.NewTicker(leased / 4)
	defer tick.Stop()
	sure := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, leased/4)
		mine, err := q.take(limited)
		cancel()
		switch {
		case err == nil && mine:
			sure = began
		case err == nil, time.Since(sure) > leased*3/4:
			lost()
			return
		}
	}
}

// leave gives the turn back.
func (q *ItemQueue) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leased/4)
	defer cancel()
	t, was, err := q.now(ctx)
	if err == nil && t.Holder == q.Holder {
		_, err = q.Store.Swap(ctx, item([]string{queueLabel}, turnKey, nil), was)
	}
	if err != nil {
		q.Log.WarnContext(ctx, "the queue of the memory is free for others after a while only", "after", leased, "error", err)
	}
}

// Forget deletes what waits of a subject; of a user that of all agents.
func (q *ItemQueue) Forget(ctx context.Context, subject string) error {
	return deleteBelow(ctx, q.Store, q.namespace(subject)...)
}
