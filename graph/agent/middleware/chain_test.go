package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/agent/llm"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

func failure(status int, text string) error { return &llm.Error{Status: status, Message: text} }

// Whatever a model fails with, the run ends with an answer, after as many tries as the error is worth; errors of others pass.
func TestModelErrorsBecomeAnswers(t *testing.T) {
	t.Parallel()
	mistake := errors.New("a mistake of the server")
	for name, tt := range map[string]struct {
		fails []error // of the tries, then success
		tries int
		text  string
		err   error
	}{
		"none":             {nil, 1, "fine", nil},
		"a broken pipe":    {[]error{llm.ErrCut}, 2, "fine", nil},
		"overload, twice":  {[]error{failure(503, "overloaded"), failure(529, "overloaded")}, 3, "fine", nil},
		"overload":         {[]error{failure(503, "x"), failure(503, "x"), failure(503, "x")}, 3, busyText, nil},
		"rate limit":       {[]error{failure(429, "slow down"), failure(429, "slow down"), failure(429, "slow down")}, 3, busyText, nil},
		"busy, in Chinese": {[]error{failure(400, "服务繁忙")}, 2, "fine", nil},
		"quota":            {[]error{failure(429, "You exceeded your current quota")}, 1, quotaText, nil},
		"auth":             {[]error{failure(401, "Incorrect key")}, 1, authText, nil},
		"refused":          {[]error{failure(400, "no such parameter")}, 1, "LLM request failed: no such parameter", nil},
		"ours":             {[]error{mistake}, 1, "", mistake},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waits []time.Duration
			after := func(d time.Duration) <-chan time.Time {
				waits = append(waits, d)
				c := make(chan time.Time, 1)
				c <- time.Time{}
				return c
			}
			m := ModelErrors(ModelErrorOptions{after: after})
			tries := 0
			ctx, fallback := WithFallback(t.Context())
			got, err := m.WrapModelCall(ctx, agent.ModelRequest{}, func(context.Context, agent.ModelRequest) (agent.ModelResponse, error) {
				if tries++; tries <= len(tt.fails) {
					return agent.ModelResponse{}, tt.fails[tries-1]
				}
				return agent.ModelResponse{Messages: []message.Message{message.AI("fine")}}, nil
			})
			require.Equal(t, tt.tries, tries)
			require.Len(t, waits, tt.tries-1)
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.text, got.Messages[0].Text())
			require.Equal(t, tt.text != "fine", IsFallback(got.Messages[0]))
			require.Equal(t, tt.text != "fine", fallback() == tt.text)
		})
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	for try, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 9: 8 * time.Second} {
		require.Equal(t, want, waitAfter(try, failure(503, "")))
	}
	require.Equal(t, 5*time.Second, waitAfter(1, &llm.Error{Status: 429, RetryAfter: 5 * time.Second}))
	require.Equal(t, llm.MaxWait, waitAfter(1, &llm.Error{Status: 429, RetryAfter: time.Hour}))
}

// A cancelled run does not wait for the next try.
func TestCancelDuringAWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m := ModelErrors(ModelErrorOptions{after: func(time.Duration) <-chan time.Time { cancel(); return nil }})
	_, err := m.WrapModelCall(ctx, agent.ModelRequest{}, func(context.Context, agent.ModelRequest) (agent.ModelResponse, error) {
		return agent.ModelResponse{}, llm.ErrUnreached
	})
	require.ErrorIs(t, err, context.Canceled)
}

// Over any order of calls and pauses, the breaker lets through what a model of it does.
func TestBreaker(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(0, 0)
		b := newBreaker(ModelErrorOptions{Failures: 1 + random.IntN(4), Recovery: time.Minute, now: func() time.Time { return now }})
		failed, until := 0, time.Time{}
		for range 60 {
			now = now.Add(time.Duration(random.IntN(40)) * time.Second)
			want := failed < b.most || !now.Before(until)
			require.Equal(t, want, b.enter(), "seed %d", seed)
			if !want {
				continue
			}
			if failed >= b.most {
				require.False(t, b.enter(), "seed %d: two probes at a time", seed)
			}
			passed := random.IntN(3) == 0
			if b.leave(passed); passed {
				failed = 0
			} else {
				failed, until = failed+1, now.Add(time.Minute)
			}
		}
	}
}

func calling(n int, name, args string) message.Message {
	return message.AI("", message.ToolCall{ID: fmt.Sprint("c", n), Name: name, Args: json.RawMessage(args)}).WithID(fmt.Sprint("m", n))
}

// turn is a question and as many equal calls with their results; the last call has none.
func turn(n int, name string, args func(int) string) []message.Message {
	list := []message.Message{message.Human("go")}
	for i := range n {
		list = append(list, calling(i, name, args(i)))
		if i < n-1 {
			list = append(list, message.Tool("x", fmt.Sprint("c", i)))
		}
	}
	return list
}

func TestLoopsAreStopped(t *testing.T) {
	t.Parallel()
	same := func(int) string { return `{"path":"/a","description":"d"}` }
	for name, tt := range map[string]struct {
		tool string
		args func(int) string
		stop int // the number of calls at which the run is stopped; 0: not below 30
	}{
		"the same call":                        {"ls", same, 5},
		"another description is the same call": {"ls", func(n int) string { return fmt.Sprintf(`{"description":"%d","path":"/a"}`, n) }, 5},
		"another path is not":                  {"ls", func(n int) string { return fmt.Sprintf(`{"path":"/%d"}`, n) }, 0},
		"lines of one part of a file":          {"read_file", func(n int) string { return fmt.Sprintf(`{"path":"/a","start_line":%d,"end_line":%d}`, n+1, n+9) }, 5},
		"a file, part by part": {"read_file", func(n int) string {
			return fmt.Sprintf(`{"path":"/a","start_line":%d,"end_line":%d}`, 1+n*200, 200+n*200)
		}, 0},
		"other text in the same file":           {"write_file", func(n int) string { return fmt.Sprintf(`{"path":"/a","content":"%d"}`, n) }, 0},
		"a tool whose arguments have no names":  {"other", func(int) string { return `{"x":1}` }, 5},
		"a tool whose unnamed arguments change": {"other", func(n int) string { return fmt.Sprintf(`{"x":%d}`, n) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Loops(LoopOptions{Warn: 3, Hard: 5, Calls: Frequency{30, 50}})
			for n := 1; n < 30; n++ {
				update, err := m.AfterModel.Run(t.Context(), pregel.Values{"messages": turn(n, tt.tool, tt.args)})
				require.NoError(t, err)
				if n != tt.stop {
					require.Nil(t, update, "%d calls", n)
					continue
				}
				got := update.(pregel.Values)["messages"].([]message.Message)[0]
				require.Empty(t, got.ToolCalls)
				require.Contains(t, got.Text(), "[FORCED STOP]")
				require.Equal(t, fmt.Sprint("m", n-1), got.ID)
				break
			}
		})
	}
	m := Loops(LoopOptions{Warn: 3, Hard: 5, Calls: Frequency{30, 50}})
	many := turn(50, "ls", func(n int) string { return fmt.Sprintf(`{"path":"/%d"}`, n) })
	update, err := m.AfterModel.Run(t.Context(), pregel.Values{"messages": many})
	require.NoError(t, err)
	require.NotNil(t, update, "one tool fifty times")
	// A new question begins anew, and a hidden message is none.
	list := append(turn(4, "ls", same), message.Tool("x", "c3"), message.Human("again"), calling(9, "ls", `{"path":"/a"}`))
	update, err = m.AfterModel.Run(t.Context(), pregel.Values{"messages": list})
	require.NoError(t, err)
	require.Nil(t, update)
	list[len(list)-2].AdditionalKwargs = json.RawMessage(`{"hide_from_ui":true}`)
	update, err = m.AfterModel.Run(t.Context(), pregel.Values{"messages": list})
	require.NoError(t, err)
	require.NotNil(t, update)
}

// The model is warned once, in the request alone.
func TestLoopsAreWarned(t *testing.T) {
	t.Parallel()
	m := Loops(LoopOptions{Warn: 3, Hard: 5})
	for n := 1; n < 8; n++ {
		list := append(turn(n, "ls", func(int) string { return `{"path":"/a"}` }), message.Tool("x", "c"))
		var seen []message.Message
		_, err := m.WrapModelCall(t.Context(), agent.ModelRequest{Messages: list}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
			seen = r.Messages
			return agent.ModelResponse{}, nil
		})
		require.NoError(t, err)
		if n == 3 {
			require.Contains(t, seen[len(seen)-1].Text(), "[LOOP DETECTED]")
		} else {
			require.Len(t, seen, len(list))
		}
	}
}

// A tool with limits of its own is judged by those.
func TestFrequencyOfATool(t *testing.T) {
	t.Parallel()
	m := Loops(LoopOptions{Calls: Frequency{30, 50}, Tools: map[string]Frequency{"bash": {60, 90}, "web_search": {2, 4}}})
	for tool, limits := range map[string]Frequency{"bash": {60, 90}, "web_search": {2, 4}, "ls": {30, 50}} {
		var warned, stopped []int
		for n := 1; n <= 91; n++ {
			list := turn(n, tool, func(n int) string { return fmt.Sprintf(`{"path":"/%d"}`, n) })
			update, err := m.AfterModel.Run(t.Context(), pregel.Values{"messages": list})
			require.NoError(t, err)
			if update != nil {
				stopped = append(stopped, n)
			}
			_, err = m.WrapModelCall(t.Context(), agent.ModelRequest{Messages: append(list, message.Tool("x", "c"))}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
				if len(r.Messages) > len(list)+1 {
					warned = append(warned, n)
				}
				return agent.ModelResponse{}, nil
			})
			require.NoError(t, err)
		}
		require.Equal(t, []int{limits.Warn}, warned, tool)
		require.Equal(t, limits.Hard, stopped[0], tool)
	}
}
