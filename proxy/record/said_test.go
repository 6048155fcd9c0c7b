package record_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/proxy"
)

// telling is a run that streams an answer word by word, and those who read it.
type telling struct {
	t    *testing.T
	w    *world
	x    *talk
	run  string
	mid  string
	step int
	text string
}

// ask makes a run with a question, whose answer is about to stream.
func (w *world) ask(t *testing.T, x *talk, n int) *telling {
	run := fmt.Sprintf("01a1fe1e-%04d-702a-948d-68b100a0daa7", n)
	say := human(fmt.Sprintf("h%d", n))
	w.u.mu.Lock()
	defer w.u.mu.Unlock()
	x.runs[run] = fmt.Sprintf(`{"input":{"messages":[%s]},"command":null}`, say)
	x.status[run] = "running"
	from := x.head()
	c := w.u.save(x, from, "input", run, x.messages(from))
	c.Results = fmt.Sprintf(`[{"id":"t","name":"__start__","path":[],"error":null,"interrupts":[],"result":{"messages":[%s]}}]`, say)
	c.Next = []string{"__start__"}
	c = w.u.save(x, c, "loop", run, append(slices.Clone(c.Messages), say))
	return &telling{t: t, w: w, x: x, run: run, mid: fmt.Sprintf("a%d", n), step: c.Step + 1}
}

// word streams a word to readers: in mode `messages` as the whole message so far.
func (a *telling) word(tuples bool, readers ...proxy.Run) {
	word := fmt.Sprintf("%s.%d ", a.mid, strings.Count(a.text, " "))
	first := a.text == ""
	a.text += word
	for _, r := range readers {
		where := fmt.Sprintf(`{"langgraph_step":%d,"langgraph_checkpoint_ns":"model:1"}`, a.step)
		event := func(name, data string) {
			_, fate := r.Event(a.t.Context(), name, []byte(data))
			require.NotEqual(a.t, overlay.Hidden, fate)
		}
		if tuples {
			event("messages", fmt.Sprintf(`[{"type":"AIMessageChunk","id":%q,"content":%q},%s]`, a.mid, word, where))
			continue
		}
		if first {
			event("messages/metadata", fmt.Sprintf(`{%q:{"metadata":%s}}`, a.mid, where))
		}
		event("messages/partial", fmt.Sprintf(`[{"type":"ai","id":%q,"content":%q}]`, a.mid, a.text))
	}
}

// ends ends the run upstream.
func (a *telling) ends(status string) {
	a.w.u.mu.Lock()
	defer a.w.u.mu.Unlock()
	a.x.status[a.run] = status
	switch status {
	case "success":
		head := a.x.head()
		a.w.u.save(a.x, head, "loop", a.run, append(slices.Clone(head.Messages), ai(a.mid)))
	case "rolled back":
		delete(a.x.runs, a.run)
		a.x.checkpoints = slices.DeleteFunc(a.x.checkpoints, func(c *checkpoint) bool { return c.Run == a.run })
	}
}

// spoken are messages as "id" or, of partial answers, "id=text".
func spoken(messages gjson.Result) string {
	var out []string
	for _, m := range messages.Array() {
		line := m.Get("id").String()
		if text := m.Get("content").String(); m.Get("type").String() == "ai" && !strings.HasPrefix(text, "answer ") {
			line += "=" + strings.TrimSpace(text)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// What runs streamed and did not save is shown after them, however they end, on every server and at any time, and
// whatever follows. Nothing else is.
func TestStreamedWordsAreKept(t *testing.T) {
	t.Parallel()
	kept := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := setup(t)
		x := w.u.thread("t1")
		follower := w.Join(t.Context(), w.call, x.id, "")
		var want []string
		var open []proxy.Run // readers whose end has not been seen
		for n := range 2 + r.IntN(5) {
			w.state(t, x)
			a := w.ask(t, x, n)
			creator := begin(t, w, x, `{"assistant_id":"g","stream_mode":["messages-tuple"],"input":{"messages":[{"role":"user","content":"x"}]}}`)
			metadata(t, creator, a.run)
			follows := r.IntN(3) == 0
			if follows {
				metadata(t, follower, a.run)
			}
			tuples := r.IntN(2) == 0
			readers := map[string]proxy.Run{"creator": creator}
			seen := ""
			for word := range r.IntN(6) {
				switch r.IntN(6) {
				case 0: // comes later: without what was streamed before
					joined := w.Join(t.Context(), w.call, x.id, id.Run(a.run))
					readers[fmt.Sprint("join", word)] = joined
				case 1: // leaves while the run continues
					if readers["creator"] != nil {
						readers["creator"].End(t.Context())
						delete(readers, "creator")
					}
				case 2:
					w.state(t, x)
				}
				var all []proxy.Run
				for _, reader := range readers {
					all = append(all, reader)
				}
				if follows {
					all = append(all, follower)
				}
				a.word(tuples, all...)
				joined := 0
				for name := range readers {
					if strings.HasPrefix(name, "join") {
						joined++
					}
				}
				if readers["creator"] != nil || follows || !tuples && joined > 0 {
					seen = a.text
				}
			}
			status := []string{"success", "interrupted", "error", "timeout", "rolled back"}[r.IntN(5)]
			a.ends(status)
			if follows && r.IntN(2) == 0 { // the end of a run in the stream of its thread
				done := fmt.Sprintf(`{"status":"run_done","run_id":%q}`, a.run)
				data, fate := follower.Event(t.Context(), "metadata", []byte(done))
				require.Equal(t, done, string(data))
				require.Equal(t, overlay.Shown, fate)
			}
			over := r.IntN(2) == 0
			for _, reader := range readers {
				if over { // its client has not seen the end yet
					reader.Ended()
					open = append(open, reader)
				} else {
					reader.End(t.Context())
				}
			}
			switch {
			case status == "success":
				want = append(want, fmt.Sprintf("h%d", n), a.mid)
			case status != "rolled back":
				want = append(want, fmt.Sprintf("h%d", n))
				if seen != "" {
					kept++
					want = append(want, a.mid+"="+strings.TrimSpace(seen))
				}
			}
			if r.IntN(2) == 0 {
				require.Equal(t, strings.Join(want, "; "), spoken(gjson.GetBytes(w.state(t, x), "values.messages")), "seed %d turn %d", seed, n)
			}
		}
		require.Equal(t, strings.Join(want, "; "), spoken(gjson.GetBytes(w.state(t, x), "values.messages")), "seed %d", seed)
		for _, reader := range open {
			reader.End(t.Context())
		}
		follower.End(t.Context())
		require.Equal(t, strings.Join(want, "; "), spoken(gjson.GetBytes(w.state(t, x), "values.messages")), "seed %d", seed)
	}
	require.Greater(t, kept, 25)
}

// Answers of many runs are kept within a bound: those of the runs that began first go.
func TestStreamedWordsAreBounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.LimitSaid(8_000) // of chunks, without their metadata
	var talks []*talk
	var told []*telling
	var readers []proxy.Run
	for n := range 20 {
		x := w.u.thread(id.Thread(fmt.Sprint("t", n)))
		talks, told = append(talks, x), append(told, w.ask(t, x, n))
	}
	for n, x := range talks { // from here on the proxy asks the upstream
		creator := begin(t, w, x, `{"assistant_id":"g","input":null}`)
		metadata(t, creator, told[n].run)
		for range 10 {
			told[n].word(true, creator)
		}
		readers = append(readers, creator)
	}
	kept := 0
	for n, x := range talks {
		told[n].ends("interrupted")
		readers[n].End(t.Context())
		switch shown := spoken(gjson.GetBytes(w.state(t, x), "values.messages")); shown {
		case fmt.Sprintf("h%d", n):
			require.Zero(t, kept, "a later run has its words")
		default:
			kept++
			require.Equal(t, fmt.Sprintf("h%d; %s=%s", n, told[n].mid, strings.TrimSpace(told[n].text)), shown)
		}
	}
	require.NotZero(t, kept)
	require.Less(t, kept, 20)
	require.Zero(t, w.SaidBytes())
}

// What a summarizer streams is not kept, also when the client reads without the overlay.
func TestWordsOfSummarizersAreNotKept(t *testing.T) {
	t.Parallel()
	for _, overlaid := range []bool{true, false} {
		w := setup(t)
		x := w.u.thread("t1")
		a := w.ask(t, x, 1)
		choosing := *w.call
		choosing.Choice = overlay.Choice{Overlay: &overlaid}
		creator, _ := w.Begin(t.Context(), &choosing, x.id, []byte(`{"assistant_id":"g","input":null}`))
		metadata(t, creator, a.run)
		_, fate := creator.Event(t.Context(), "messages", []byte(`[{"type":"AIMessageChunk","id":"s1","content":"in short"},{"langgraph_step":1,"lc_source":"summarization"}]`))
		require.Equal(t, !overlaid, fate == overlay.Shown)
		a.word(true, creator)
		a.ends("interrupted")
		creator.End(t.Context())
		require.Equal(t, "h1; a1=a1.0", spoken(gjson.GetBytes(w.state(t, x), "values.messages")))
	}
}
