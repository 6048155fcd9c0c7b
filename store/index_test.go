package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/logtest"
	"understudy/storage/sqlite"
	"understudy/store"
)

// words embeds texts by the words that they have.
type words struct {
	vocabulary []string
	calls      atomic.Int64
	texts      atomic.Int64
	broken     atomic.Bool
	gate       chan struct{} // nil: calls do not wait
	before     func()        // called in each call
}

func newWords(vocabulary ...string) *words { return &words{vocabulary: vocabulary} }

func (w *words) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	w.calls.Add(1)
	w.texts.Add(int64(len(texts)))
	if w.gate != nil {
		select {
		case <-w.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if w.before != nil {
		w.before()
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if strings.Contains(text, "explode") || w.broken.Load() {
			return nil, errors.New("secret of the embedding")
		}
		out[i] = make([]float32, len(w.vocabulary))
		for n, word := range w.vocabulary {
			out[i][n] = float32(strings.Count(text, word))
		}
	}
	return out, nil
}

// database returns items that outlive services.
func database(t *testing.T) *sqlite.Store {
	t.Helper()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	return rows
}

func indexed(t *testing.T, rows *sqlite.Store, i store.Index) *store.Service {
	t.Helper()
	s := store.NewService(rows.Items(), nil)
	require.NoError(t, s.UseIndex(t.Context(), i))
	return s
}

func put(t *testing.T, s *store.Service, key, value, index string) {
	t.Helper()
	i := store.Item{Namespace: []string{"n"}, Key: key, Value: json.RawMessage(value)}
	if index != "" {
		i.Index = json.RawMessage(index)
	}
	require.NoError(t, s.Put(t.Context(), i))
}

func hits(t *testing.T, s *store.Service, query string) []string {
	t.Helper()
	list, err := s.Search(t.Context(), store.Search{Prefix: []string{"n"}, Query: query, Limit: 100}, nil)
	require.NoError(t, err)
	out := []string{}
	for _, i := range list {
		if i.Score == nil {
			out = append(out, i.Key)
		} else {
			out = append(out, fmt.Sprintf("%s %.2f", i.Key, *i.Score))
		}
	}
	return out
}

func TestSearchByMeaning(t *testing.T) {
	t.Parallel()
	s := indexed(t, database(t), store.Index{Embedder: newWords("red", "cat"), Dims: 2, Name: "words", Fields: []string{"text", "tags[*]"}})
	put(t, s, "a", `{"text":"red cat"}`, "")
	put(t, s, "b", `{"text":"red"}`, "")
	put(t, s, "c", `{"text":"cat","other":"red"}`, "")
	put(t, s, "chosen", `{"text":"cat","other":"red"}`, `["other"]`)
	put(t, s, "hidden", `{"text":"red"}`, `false`)
	put(t, s, "twice", `{"text":"red cat","tags":["red cat","red cat","red"]}`, "")
	require.Equal(t, []string{"twice 1.00", "chosen 1.00", "b 1.00", "a 0.71", "c 0.00"}, hits(t, s, "red"))
	put(t, s, "twice", `{"text":"cat"}`, "")
	put(t, s, "chosen", `{"other":"red"}`, `false`)
	require.Equal(t, []string{"b 1.00", "a 0.71", "twice 0.00", "c 0.00"}, hits(t, s, "red"), "an update replaces all that was embedded")
	require.Equal(t, []string{"chosen", "twice", "hidden", "c", "b", "a"}, hits(t, s, ""), "without a query there are no scores")
	require.NoError(t, s.Delete(t.Context(), []string{"n"}, "b"))
	require.Equal(t, []string{"a 0.71", "twice 0.00", "c 0.00"}, hits(t, s, "red"))
}

func TestGraphsSearchByMeaning(t *testing.T) {
	t.Parallel()
	s := indexed(t, database(t), store.Index{Embedder: newWords("red", "cat"), Dims: 2, Name: "words"})
	ns := []string{"n"}
	_, err := s.Batch(t.Context(), []graph.StoreOp{
		{Put: &graph.StorePut{Namespace: ns, Key: "a", Value: json.RawMessage(`{"any":"red"}`)}},
		{Put: &graph.StorePut{Namespace: ns, Key: "b", Value: json.RawMessage(`{"any":"red","own":"cat"}`), Index: json.RawMessage(`["own"]`)}},
		{Put: &graph.StorePut{Namespace: ns, Key: "gone"}},
	})
	require.NoError(t, err)
	results, err := s.Batch(t.Context(), []graph.StoreOp{
		{Search: &graph.StoreSearch{Prefix: ns, Query: "red", Limit: 5}},
		{Search: &graph.StoreSearch{Prefix: ns, Limit: 1}},
		{Search: &graph.StoreSearch{Prefix: ns, Query: "cat", Limit: 1}},
	})
	require.NoError(t, err)
	require.Len(t, results[0].Items, 2)
	require.Equal(t, "a", results[0].Items[0].Key)
	require.InDelta(t, 1, *results[0].Items[0].Score, 1e-6)
	require.Nil(t, results[1].Items[0].Score)
	require.Equal(t, "b", results[2].Items[0].Key)
}

// A put whose embedding fails writes nothing, and the cause is not for clients.
func TestEmbeddingFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		embed func([]string) [][]float32
		cause string
	}{
		{"too few", func([]string) [][]float32 { return nil }, "0 vectors for 1 texts"},
		{"dimensions", func([]string) [][]float32 { return [][]float32{{1, 2, 3}} }, "set dims to 3"},
		{"not a number", func([]string) [][]float32 { return [][]float32{{float32(math.NaN()), 1}} }, "NaN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := indexed(t, database(t), store.Index{Embedder: embedFunc(tt.embed), Dims: 2, Name: "words"})
			err := s.Put(t.Context(), store.Item{Namespace: []string{"n"}, Key: "k", Value: json.RawMessage(`{"text":"x"}`)})
			require.Equal(t, fault.Internal, fault.KindOf(err))
			require.ErrorContains(t, err, tt.cause)
			_, err = s.Search(t.Context(), store.Search{Query: "x"}, nil)
			require.Equal(t, fault.Internal, fault.KindOf(err))
			i, err := s.Get(t.Context(), []string{"n"}, "k", nil)
			require.NoError(t, err)
			require.Nil(t, i)
		})
	}
}

type embedFunc func([]string) [][]float32

func (f embedFunc) Embed(_ context.Context, texts []string) ([][]float32, error) {
	return f(texts), nil
}

// Requests that arrive while others are embedded share a call; one that cannot be embedded does not fail the others.
func TestRequestsShareCalls(t *testing.T) {
	t.Parallel()
	w := newWords("red", "cat")
	w.gate = make(chan struct{})
	s := indexed(t, database(t), store.Index{Embedder: w, Dims: 2, Name: "words"})
	var group sync.WaitGroup
	errs := make([]error, 40)
	for n := range errs {
		value := `{"text":"red"}`
		if n == 20 {
			value = `{"text":"explode"}`
		}
		group.Go(func() {
			errs[n] = s.Put(t.Context(), store.Item{Namespace: []string{"n"}, Key: fmt.Sprint(n), Value: json.RawMessage(value)})
		})
	}
	require.Eventually(t, func() bool { return w.calls.Load() == 4 }, 10*time.Second, time.Millisecond)
	require.Never(t, func() bool { return w.calls.Load() > 4 }, 20*time.Millisecond, 5*time.Millisecond, "no more calls at once")
	close(w.gate)
	group.Wait()
	for n, err := range errs {
		require.Equal(t, n == 20, err != nil, "%d: %v", n, err)
	}
	require.Len(t, hits(t, s, "red"), 39)
	require.Less(t, w.calls.Load(), int64(90))
}

// A client that leaves does not fail the requests that share its call.
func TestAClientLeaves(t *testing.T) {
	t.Parallel()
	w := newWords("red", "cat")
	w.gate = make(chan struct{})
	s := indexed(t, database(t), store.Index{Embedder: w, Dims: 2, Name: "words"})
	ctx, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error, 8), make(chan error, 1)
	for n := range 8 {
		go func() {
			left <- s.Put(ctx, store.Item{Namespace: []string{"n"}, Key: fmt.Sprint("left", n), Value: json.RawMessage(`{"text":"red"}`)})
		}()
	}
	require.Eventually(t, func() bool { return w.calls.Load() == 4 }, 10*time.Second, time.Millisecond)
	go func() {
		stayed <- s.Put(t.Context(), store.Item{Namespace: []string{"n"}, Key: "stayed", Value: json.RawMessage(`{"text":"red"}`)})
	}()
	leave()
	close(w.gate)
	for range 8 {
		require.ErrorIs(t, <-left, context.Canceled)
	}
	require.NoError(t, <-stayed)
	require.Equal(t, []string{"stayed 1.00"}, hits(t, s, "red"))
}

// run embeds what has no embedding until none is left.
func run(t *testing.T, s *store.Service, done func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Embed(ctx) }()
	require.Eventually(t, done, 10*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// With another model or other fields everything is embedded again; until then searches find what already is.
func TestTheConfigurationChanges(t *testing.T) {
	t.Parallel()
	rows := database(t)
	plain := store.NewService(rows.Items(), nil)
	for n := range 150 {
		put(t, plain, fmt.Sprintf("%03d", n), `{"text":"red","other":"cat"}`, "")
	}
	put(t, plain, "own", `{"text":"red","other":"cat"}`, `["other"]`)
	put(t, plain, "none", `{"text":"red","other":"cat"}`, `false`)
	put(t, plain, "bad", `{"text":"explode"}`, "")
	require.Len(t, hits(t, plain, "red"), 100, "without an index the query is ignored")

	var log logtest.Buffer
	index := store.Index{Embedder: newWords("red", "cat"), Dims: 2, Name: "words", Fields: []string{"text"}, Every: time.Hour}
	s := indexed(t, rows, index)
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	require.Empty(t, hits(t, s, "red"))
	run(t, s, func() bool { return strings.Contains(log.String(), "items of the store embedded") })
	list, err := s.Search(t.Context(), store.Search{Query: "red", Limit: 1000}, nil)
	require.NoError(t, err)
	require.Len(t, list, 151)
	require.Equal(t, "own 1.00", hits(t, s, "cat")[0])
	require.Contains(t, log.String(), "key=bad")
	require.Contains(t, log.String(), "items=152 failed=1")

	index.Fields, index.Every = []string{"other"}, time.Minute
	s = indexed(t, rows, index)
	require.Equal(t, "149 1.00", hits(t, s, "red")[0], "vectors of the same model are used until they are replaced")
	run(t, s, func() bool { return hits(t, s, "cat")[0] == "own 1.00" && hits(t, s, "cat")[99][4:] == "1.00" })

	index.Name, index.Dims, index.Embedder = "more words", 3, newWords("red", "cat", "dog")
	s = indexed(t, rows, index)
	require.Empty(t, hits(t, s, "cat"), "vectors of other models are not compared")
	run(t, s, func() bool { return len(hits(t, s, "cat")) == 100 })
}

// Items are looked for when the model can be called, not before: the next turn is a minute later.
func TestTheModelIsNotReadyAtOnce(t *testing.T) {
	t.Parallel()
	rows := database(t)
	put(t, store.NewService(rows.Items(), nil), "k", `{"text":"red"}`, "")
	w := newWords("red", "cat")
	asked, ready := make(chan struct{}), make(chan struct{})
	s := indexed(t, rows, store.Index{Embedder: w, Dims: 2, Name: "words", Every: time.Hour, Ready: func(ctx context.Context) error {
		close(asked)
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	go func() {
		<-asked
		if w.calls.Load() == 0 {
			close(ready)
		}
	}()
	run(t, s, func() bool { return w.calls.Load() > 0 })
	select {
	case <-ready:
	default:
		require.FailNow(t, "the model was called before it was ready")
	}

	s = indexed(t, rows, store.Index{Embedder: w, Dims: 2, Name: "words", Ready: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, s.Embed(ctx), "a server that ends meanwhile")
	s = indexed(t, rows, store.Index{Embedder: w, Dims: 2, Name: "words", Ready: func(context.Context) error { return errors.New("it does not import") }})
	calls := w.calls.Load()
	require.NoError(t, s.Embed(t.Context()), "what loads the model ends the server")
	require.Equal(t, calls, w.calls.Load())
}

// An item that is written while it is embedded keeps what was written.
func TestAnItemChangesWhileItIsEmbedded(t *testing.T) {
	t.Parallel()
	rows := database(t)
	plain := store.NewService(rows.Items(), nil)
	put(t, plain, "k", `{"text":"red"}`, "")
	w := newWords("red", "cat")
	s := indexed(t, rows, store.Index{Embedder: w, Dims: 2, Name: "words", Every: time.Hour})
	var once sync.Once
	w.before = func() { once.Do(func() { put(t, plain, "k", `{"text":"cat"}`, "") }) }
	run(t, s, func() bool { return w.calls.Load() > 0 })
	require.Empty(t, hits(t, s, "red"))
	i, err := s.Get(t.Context(), []string{"n"}, "k", nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"cat"}`, string(i.Value))
}

func TestTextsOfAnItem(t *testing.T) {
	t.Parallel()
	const value = `{"s":"x","n":7,"f":1.0,"big":1e22,"small":0.00001,"yes":true,"none":null,"o":{"b":"é","a":[1,{"z":null}]},"l":["p",{"q":"r"},["t"]],"a.b":"dotted","empty":""}`
	for _, tt := range []struct {
		path string
		want []string
	}{
		{"s", []string{"x"}},
		{"n", []string{"7"}},
		{"f", []string{"1.0"}},
		{"big", []string{"1e+22"}},
		{"small", []string{"1e-05"}},
		{"yes", []string{"True"}},
		{"none", nil},
		{"missing", nil},
		{"empty", []string{""}},
		{"o", []string{`{"a": [1, {"z": null}], "b": "é"}`}},
		{"o.b", []string{"é"}},
		{"o.a[0]", []string{"1"}},
		{"o.a[-1]", []string{`{"z": null}`}},
		{"o.a[5]", nil},
		{"o.a[x]", nil},
		{"l[*]", []string{"p", `{"q": "r"}`, `["t"]`}},
		{"l[*].q", []string{"r"}},
		{"l[2][0]", []string{"t"}},
		{"{s, n,o.b,none,missing}", []string{"x", "7", "é"}},
		{"o.*", []string{`[1, {"z": null}]`, "é"}},
		{"l.*", []string{"p", `{"q": "r"}`, `["t"]`}},
		{"s.x", nil},
		{"[", nil},
		{"{", nil},
		{".s", []string{"x"}},
	} {
		var got []string
		s := indexed(t, database(t), store.Index{Embedder: embedFunc(func(texts []string) [][]float32 {
			got = texts
			return slices.Repeat([][]float32{{1}}, len(texts))
		}), Dims: 1, Name: "texts", Fields: []string{tt.path}})
		put(t, s, "k", value, "")
		require.Equal(t, tt.want, got, tt.path)
	}
	many := `{"l":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 3000), ",") + `]}`
	s := indexed(t, database(t), store.Index{Embedder: newWords("x"), Dims: 1, Name: "words", Fields: []string{"l[*]"}})
	put(t, s, "same", many, "")
	var different strings.Builder
	for n := range 1001 {
		fmt.Fprintf(&different, `"%d",`, n)
	}
	err := s.Put(t.Context(), store.Item{Namespace: []string{"n"}, Key: "k", Value: json.RawMessage(`{"l":[` + strings.TrimSuffix(different.String(), ",") + `]}`)})
	require.Equal(t, fault.Unprocessable, fault.KindOf(err))
}
