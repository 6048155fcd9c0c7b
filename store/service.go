package store

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/limits"
	"understudy/internal/sweep"
)

// Retention sets how long items are kept.
type Retention struct {
	Default time.Duration // for items without a ttl; 0: kept forever
	Unread  bool          // reading an item postpones its expiry only on request
	Every   time.Duration // between sweeps; default 5 min
}

// Service is the store for clients and graphs.
type Service struct {
	Retention Retention
	Log       *slog.Logger // of sweeps
	backend   Backend
	index     *index // nil: there is none
	now       func() time.Time
}

// NewService returns a Service. now may be nil: the clock of the machine.
func NewService(backend Backend, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{Log: slog.New(slog.DiscardHandler), backend: backend, now: now}
}

var _ graph.Store = (*Service)(nil)

// NoNUL is the error of LangGraph's stores for a label with NUL.
func NoNUL(label string) error {
	return fault.Newf(fault.Invalid, `Invalid namespace label '%s'. Namespace labels cannot contain NUL bytes ('\x00').`, strings.ReplaceAll(label, "\x00", `\x00`))
}

// CheckNamespace returns an error for labels that are empty, or contain NUL or periods: on the wire namespaces are joined by
// periods.
func CheckNamespace(namespace []string) error {
	for _, label := range namespace {
		if strings.IndexByte(label, 0) >= 0 {
			return NoNUL(label)
		}
		if label == "" || strings.Contains(label, ".") {
			return fault.Newf(fault.Unprocessable, "Namespace label '%s' must be a non-empty string without periods", label)
		}
	}
	return nil
}

// checkWritable returns an error for namespaces that LangGraph's stores refuse on writing.
func checkWritable(namespace []string) error {
	switch {
	case len(namespace) == 0:
		return fault.New(fault.Invalid, "Namespace cannot be empty.")
	case namespace[0] == "langgraph":
		return fault.Newf(fault.Invalid, `Root label for namespace cannot be "langgraph". Got: %s`, strings.Join(namespace, "."))
	}
	return CheckNamespace(namespace)
}

// Put writes a whole item, replacing an existing one. A TTL of 0 means the configured one, a negative TTL none.
func (s *Service) Put(ctx context.Context, i Item) error {
	if err := checkWritable(i.Namespace); err != nil {
		return err
	}
	if err := limits.ItemName(i.Namespace, i.Key); err != nil {
		return err
	}
	items := []*Item{s.stamped(i)}
	if err := s.embed(ctx, items); err != nil {
		return err
	}
	return s.backend.Apply(ctx, items)
}

// Swap writes an item as Put does, or deletes it if its Value is nil, unless it has changed since it was read (nil: there was none). done is false when it has.
func (s *Service) Swap(ctx context.Context, i Item, was *Item) (done bool, err error) {
	if err := checkWritable(i.Namespace); err != nil {
		return false, err
	}
	if err := limits.ItemName(i.Namespace, i.Key); err != nil {
		return false, err
	}
	next := &i
	if i.Value != nil {
		next = s.stamped(i)
	}
	if err := s.embed(ctx, []*Item{next}); err != nil {
		return false, err
	}
	return s.backend.Swap(ctx, next, was)
}

func (s *Service) stamped(i Item) *Item {
	now := s.now()
	i.CreatedAt, i.UpdatedAt = now, now
	if i.TTL == 0 {
		i.TTL = s.Retention.Default
	}
	if i.TTL = max(i.TTL, 0); i.TTL > 0 {
		i.ExpiresAt = now.Add(i.TTL)
	}
	return &i
}

// Get returns an item, nil when there is none. refresh postpones its expiry; nil: as configured.
func (s *Service) Get(ctx context.Context, namespace []string, key string, refresh *bool) (*Item, error) {
	if err := CheckNamespace(namespace); err != nil {
		return nil, err
	}
	i, err := s.backend.Item(ctx, namespace, key)
	if err == nil && i != nil && s.refreshes(refresh) {
		err = s.touch(ctx, []*Item{i})
	}
	return i, err
}

func (s *Service) refreshes(asked *bool) bool {
	if asked != nil {
		return *asked
	}
	return !s.Retention.Unread
}

func (s *Service) touch(ctx context.Context, items []*Item) error {
	var due []*Item
	for _, i := range items {
		if i.TTL > 0 {
			i.ExpiresAt = s.now().Add(i.TTL)
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return nil
	}
	return s.backend.Touch(ctx, due)
}

// Delete deletes an item, if it exists.
func (s *Service) Delete(ctx context.Context, namespace []string, key string) error {
	if err := CheckNamespace(namespace); err != nil {
		return err
	}
	return s.backend.Apply(ctx, []*Item{{Namespace: namespace, Key: key}})
}

// Search returns a page of items, none without a limit. refresh postpones their expiry; nil: as configured.
func (s *Service) Search(ctx context.Context, q Search, refresh *bool) ([]*Item, error) {
	if err := CheckNamespace(q.Prefix); err != nil || q.Limit <= 0 {
		return nil, err
	}
	if err := s.near(ctx, &q); err != nil {
		return nil, err
	}
	return s.found(ctx, q, refresh)
}

// found returns the results of a search whose query is embedded.
func (s *Service) found(ctx context.Context, q Search, refresh *bool) ([]*Item, error) {
	items, err := s.backend.Items(ctx, q)
	if err == nil && s.refreshes(refresh) {
		err = s.touch(ctx, items)
	}
	return items, err
}

// Load returns the current state of an item that was found without its value; nil when it was deleted meanwhile.
func (s *Service) Load(ctx context.Context, i *Item) (*Item, error) {
	if i.Value != nil {
		return i, nil
	}
	loaded, err := s.backend.Item(ctx, i.Namespace, i.Key)
	if loaded != nil {
		loaded.Score = i.Score
	}
	return loaded, err
}

// Namespaces lists namespaces, none without a limit.
func (s *Service) Namespaces(ctx context.Context, q Namespaces) ([][]string, error) {
	for _, labels := range [][]string{q.Prefix, q.Suffix} {
		if err := CheckNamespace(labels); err != nil {
			return nil, err
		}
	}
	if q.Limit <= 0 {
		return nil, nil
	}
	return s.backend.ListNamespaces(ctx, q)
}

// Batch executes the operations of a graph: reads first, on the state before, then writes in one transaction, as LangGraph's stores do.
func (s *Service) Batch(ctx context.Context, ops []graph.StoreOp) ([]graph.StoreResult, error) {
	searches, writes, err := s.prepare(ctx, ops)
	if err != nil {
		return nil, err
	}
	results := make([]graph.StoreResult, len(ops))
	for n, op := range ops {
		var err error
		switch {
		case op.Get != nil:
			results[n].Item, err = s.Get(ctx, op.Get.Namespace, op.Get.Key, op.Get.Refresh)
		case op.Search != nil:
			results[n].Items, err = s.found(ctx, *searches[n], op.Search.Refresh)
		case op.List != nil:
			results[n].Namespaces, err = s.Namespaces(ctx, Namespaces{
				Prefix: op.List.Prefix, Suffix: op.List.Suffix, MaxDepth: op.List.MaxDepth, Limit: op.List.Limit, Offset: op.List.Offset,
			})
		}
		if err != nil {
			return nil, err
		}
	}
	if len(writes) > 0 {
		if err := s.backend.Apply(ctx, writes); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// prepare checks operations, and embeds what they write and search. The searches are by the number of their operation.
func (s *Service) prepare(ctx context.Context, ops []graph.StoreOp) (map[int]*Search, []*Item, error) {
	var writes []*Item
	searches := map[int]*Search{}
	for n, op := range ops {
		switch {
		case op.Get != nil, op.List != nil:
		case op.Search != nil:
			if err := CheckNamespace(op.Search.Prefix); err != nil {
				return nil, nil, err
			}
			searches[n] = &Search{Prefix: op.Search.Prefix, Filter: op.Search.Filter, Query: op.Search.Query, Limit: op.Search.Limit, Offset: op.Search.Offset}
		case op.Put != nil:
			if err := checkWritable(op.Put.Namespace); err != nil {
				return nil, nil, err
			}
			i := &Item{Namespace: op.Put.Namespace, Key: op.Put.Key, Value: op.Put.Value, Index: op.Put.Index}
			if op.Put.Value != nil {
				if err := limits.ItemName(i.Namespace, i.Key); err != nil {
					return nil, nil, err
				}
				i.TTL = minutes(op.Put.TTL)
				i = s.stamped(*i)
			}
			writes = append(writes, i)
		default:
			return nil, nil, fault.New(fault.Invalid, "unknown store operation")
		}
	}
	if err := s.near(ctx, slices.Collect(maps.Values(searches))...); err != nil {
		return nil, nil, err
	}
	return searches, writes, s.embed(ctx, writes)
}

// minutes limits a time to live to a century, so that it cannot overflow.
func minutes(n float64) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	switch {
	case n >= longest.Minutes():
		return longest
	case !(n >= 0):
		return -1
	}
	return time.Duration(n * float64(time.Minute))
}

// bite is how many items one transaction deletes, so that other writers do not wait long.
const bite = 500

// Sweep deletes expired items until ctx ends: at the start and at every interval, on one server at a time. Failures are logged, and the next sweep
// continues.
func (s *Service) Sweep(ctx context.Context) error {
	loop := sweep.Loop{Turns: s.backend, Name: "items", Every: s.Retention.Every, Log: s.Log, Now: s.now, Do: s.sweep}
	if loop.Every <= 0 {
		loop.Every = 5 * time.Minute
	}
	return loop.Run(ctx)
}

func (s *Service) sweep(ctx context.Context, until time.Time) (err error) {
	total, n := 0, bite
	for n == bite && err == nil && s.now().Before(until) {
		n, err = s.backend.Sweep(ctx, s.now(), bite)
		total += n
	}
	if total > 0 {
		s.Log.InfoContext(ctx, "items swept", "deleted", total)
	}
	return err
}
