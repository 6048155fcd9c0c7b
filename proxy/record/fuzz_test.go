package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/proxy"
	"understudy/proxy/record"
	"understudy/storage/sqlite"
)

// An upstream has gone mad: it returns the same odd bytes to every question but who the thread is. Fuzzing proper, with coverage, is too slow
// with a database below: FuzzSnapshot does it for what is read.
func TestMadAnswers(t *testing.T) {
	t.Parallel()
	u := newUpstream()
	x := u.thread("t1")
	for n := range 3 {
		u.run(x, x.head(), n+1, 2)
	}
	seeds := []string{
		x.state(x.head(), true), x.state(nil, true), x.history("", 100), "[" + x.row() + "]", x.values(x.head().Messages, `,"summary":"x"`),
		`{"assistant_id":"g","input":{"messages":[{"type":"remove","id":"h1"}]},"command":{"update":{}},"run_id":"r"}`,
	}
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: sqlite.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	rnd := rand.New(rand.NewPCG(1, 2))
	// What is put in place of a value is of another type, or of another checkpoint.
	odd := []string{`null`, `7`, `-1e999`, `"x"`, `[]`, `{}`, `[null]`, `[[]]`, `{"type":"human","content":1,"id":2}`, strings.Repeat("9", 400), `""`, `"\ud800"`, `true`}
	for range 200 {
		body := []byte(seeds[rnd.IntN(len(seeds))])
		for range 1 + rnd.IntN(4) {
			body = mutate(rnd, body, odd)
		}
		mad(t, s, x, body)
	}
}

var value = regexp.MustCompile(`"[^"]*"|\[\]|\{\}|null|\d+`)

// mutate puts something else in place of a value, or cuts.
func mutate(rnd *rand.Rand, body []byte, odd []string) []byte {
	at := value.FindAllIndex(body, -1)
	if len(at) == 0 {
		return body
	}
	i, j := at[rnd.IntN(len(at))], at[rnd.IntN(len(at))]
	switch rnd.IntN(8) {
	case 0:
		return body[:i[0]]
	case 1, 2: // another value of the same body
		return slices.Concat(body[:i[0]], body[j[0]:j[1]], body[i[1]:])
	default:
		return slices.Concat(body[:i[0]], []byte(odd[rnd.IntN(len(odd))]), body[i[1]:])
	}
}

func mad(t *testing.T, s *sqlite.Store, x *talk, body []byte) {
	t.Helper()
	ask := func(_ context.Context, _ http.Header, _, path string, _ []byte) (int, http.Header, []byte, error) {
		if path == "/threads/t1" {
			return http.StatusOK, nil, []byte(x.row()), nil
		}
		return http.StatusOK, nil, body, nil
	}
	r := record.New(record.Options{Store: s.Upstream(), Ask: ask, Overlay: overlay.Config{Settings: overlay.Defaults()}})
	c := &proxy.Call{Header: http.Header{}}
	valid := json.Valid(body)
	check := func(out []byte) { require.True(t, !valid || json.Valid(out), "%s -> %s", body, out) }
	check(r.State(t.Context(), c, "t1", true, body))
	check(r.State(t.Context(), c, "t1", false, body))
	history, _, _ := r.History(t.Context(), c, "t1", body)
	check(history)
	check(r.Threads(t.Context(), c, body))
	run, out := r.Begin(t.Context(), c, "t1", body)
	check(out)
	run.Created(t.Context(), body)
	run.Event(t.Context(), "metadata", body)
	for _, event := range []string{"values", "values", "messages", "messages/metadata", "messages/partial"} {
		out, _ := run.Event(t.Context(), event, body)
		check(out)
	}
	check(run.Result(t.Context(), body))
	run.End(t.Context())
	update, out := r.Update(t.Context(), c, "t1", body)
	check(out)
	update.Done(t.Context(), body)
	_, _ = r.Messages(t.Context(), c, eventstore.PageQuery{Thread: "t1", Limit: 10}) // whatever it says
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Run(ctx))
	r.Gone(t.Context(), "t1")
}

// What LangGraph Server was recorded to answer passes, and what can be recorded of it is.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../conformance/wire/*.http")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	placeholder := regexp.MustCompile(`<uuid-(\d+)>`)
	w := setup(t)
	shown := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "\n\n") {
			if !json.Valid([]byte(part)) {
				continue
			}
			body := placeholder.ReplaceAll([]byte(part), []byte("1f0e5a88-0000-6c63-8012-$1"))
			thread := id.Thread(fmt.Sprintf("t%d", shown)) // unknown to the client
			shown++
			for name, out := range map[string][]byte{
				"state": w.State(t.Context(), w.call, thread, true, body), "history": w.History(t.Context(), w.call, thread, body),
				"threads": w.Threads(t.Context(), w.call, body),
			} {
				require.True(t, json.Valid(out), "%s of %s", name, file)
				require.Equal(t, plainJSON(t, body), plainJSON(t, out), "%s of %s", name, file)
			}
		}
	}
	require.Greater(t, shown, 100)
}

// plainJSON is JSON without what says that a transcript is not whole.
func plainJSON(t *testing.T, body []byte) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, body))
	return strings.ReplaceAll(b.String(), `,"incomplete":true`, "")
}
