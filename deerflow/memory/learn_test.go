package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/flock"
)

func learner(t *testing.T, limits Limits, ask func(ctx context.Context, prompt string) (string, error)) *Learner {
	t.Helper()
	dir := t.TempDir()
	l := inFolder(dir, ask)
	l.Limits = func() Limits { return limits }
	return l
}

func inFolder(dir string, ask func(context.Context, string) (string, error)) *Learner {
	kept := Files{func(user string) string { return filepath.Join(dir, "users", user, "memory.json") }}
	return &Learner{
		Book: &Book{In: func(string) Documents { return kept }, Now: time.Now}, Queue: &Folder{Dir: filepath.Join(dir, "queue")},
		Ask: ask, Limits: func() Limits { return Limits{Confidence: 0.7, MaxFacts: 10} }, Log: slog.New(slog.DiscardHandler),
	}
}

// folder is where conversations wait.
func (l *Learner) folder() string { return l.Queue.(*Folder).Dir }

func fact(content string, confidence float64) string {
	return fmt.Sprintf(`{"newFacts":[{"content":%q,"category":"preference","confidence":%g,"scope":"user","durability":"durable","authority":"descriptive"}]}`, content, confidence)
}

// waits returns how many conversations wait.
func (l *Learner) waits(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(l.folder(), "*.json"))
	require.NoError(t, err)
	return len(list)
}

// What was said is learned after a rest, once, the newest version of each conversation, and for its user alone.
func TestLearn(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	l := learner(t, Limits{Confidence: 0.7, MaxFacts: 10}, func(_ context.Context, prompt string) (string, error) {
		asked <- prompt
		_, word, _ := strings.Cut(prompt, "User: likes ")
		word, _, _ = strings.Cut(word, "\n")
		return "<think>{no}</think> Here: " + fact("likes "+word, 0.9), nil
	})
	require.NoError(t, l.Add(t.Context(), "ann", "t1", []Turn{{User: true, Text: "likes tea"}}))
	require.NoError(t, l.Add(t.Context(), "ann", "t1", []Turn{{User: true, Text: "likes coffee"}, {Text: "Noted."}}))
	require.NoError(t, l.Add(t.Context(), "ben", "../t1", []Turn{{User: true, Text: "likes " + strings.Repeat("x", 5000)}}))
	require.NoError(t, l.Add(t.Context(), "ben", "t2", nil))
	require.Equal(t, 2, l.waits(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	for range 2 {
		require.Less(t, len(<-asked), 4000)
	}
	require.Eventually(t, func() bool { return l.waits(t) == 0 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	m, err := l.Book.Read(t.Context(), "ann")
	require.NoError(t, err)
	require.Len(t, m.Facts, 1)
	require.Equal(t, []string{"likes coffee", "t1", "preference"}, []string{m.Facts[0].Content, m.Facts[0].Source, m.Facts[0].Category})
	m, err = l.Book.Read(t.Context(), "ben")
	require.NoError(t, err)
	require.NotContains(t, m.Block(1000), "coffee")
	require.NoFileExists(t, filepath.Join(filepath.Dir(l.folder()), "t1.json"))
}

// What waited when a process was killed, the next one learns.
func TestLearnAfterARestart(t *testing.T) {
	t.Parallel()
	ctx, kill := context.WithCancel(t.Context())
	asking := make(chan struct{})
	l := learner(t, Limits{}, func(ctx context.Context, _ string) (string, error) {
		close(asking)
		<-ctx.Done()
		return "", ctx.Err()
	})
	require.NoError(t, l.Add(t.Context(), "ann", "t", []Turn{{User: true, Text: "hi"}}))
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	<-asking
	kill()
	require.NoError(t, <-ended)
	require.Equal(t, 1, l.waits(t))

	next := &Learner{Book: l.Book, Queue: l.Queue, Limits: l.Limits, Log: l.Log, Ask: func(context.Context, string) (string, error) { return fact("known", 1), nil }}
	require.Equal(t, idle, next.alone(t.Context()))
	m, err := l.Book.Read(t.Context(), "ann")
	require.NoError(t, err)
	require.Len(t, m.Facts, 1)
	require.Zero(t, l.waits(t))
}

// A model that fails is asked three times; an answer that cannot be read, and a file that is none, are left at once.
func TestLearnFromFailures(t *testing.T) {
	t.Parallel()
	tries := 0
	l := learner(t, Limits{}, func(context.Context, string) (string, error) { tries++; return "", errors.New("down") })
	require.NoError(t, l.Add(t.Context(), "ann", "t", []Turn{{User: true, Text: "hi"}}))
	for l.alone(t.Context()) == retry {
		require.Less(t, tries, 10)
	}
	require.Equal(t, maxTries, tries)
	require.Zero(t, l.waits(t))

	l.Ask = func(context.Context, string) (string, error) { return "no JSON at all", nil }
	require.NoError(t, l.Add(t.Context(), "ann", "t", []Turn{{User: true, Text: "hi"}}))
	require.NoError(t, os.WriteFile(filepath.Join(l.folder(), "odd.json"), []byte("{"), 0o600))
	require.Equal(t, idle, l.alone(t.Context()))
	require.Zero(t, l.waits(t))
	m, err := l.Book.Read(t.Context(), "ann")
	require.NoError(t, err)
	require.Zero(t, m.Revision)
}

// Over any answers, a memory has no fact twice, none below the confidence, none that is not about the user, and no more than the limit.
func TestLearnedFactsKeepTheRules(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		limits := Limits{Confidence: 0.7, MaxFacts: 5}
		var answer string
		l := learner(t, limits, func(context.Context, string) (string, error) { return answer, nil })
		for round := range 8 {
			var got struct {
				NewFacts      []map[string]any `json:"newFacts"`
				FactsToRemove []string         `json:"factsToRemove"`
			}
			m, err := l.Book.Read(t.Context(), "u")
			require.NoError(t, err)
			if len(m.Facts) > 0 && random.IntN(2) == 0 {
				got.FactsToRemove = []string{m.Facts[0].ID, "unknown"}
			}
			for range random.IntN(4) {
				content := []string{"a", "A ", "b", "c", "d", "e", "f", "g", "", strings.Repeat("x", 100_000)}[random.IntN(10)]
				got.NewFacts = append(got.NewFacts, map[string]any{
					"content": content, "confidence": float64(random.IntN(13)) / 10, "scope": []string{"user", "user", "world"}[random.IntN(3)], "durability": "durable", "authority": "descriptive",
				})
			}
			text, err := json.Marshal(got)
			require.NoError(t, err)
			answer = string(text)
			require.NoError(t, l.learn(t.Context(), &waiting{User: "u", Thread: fmt.Sprint(round), Turns: []Turn{{User: true, Text: "x"}}}, func() (bool, error) { return true, nil }))
			m, err = l.Book.Read(t.Context(), "u")
			require.NoError(t, err)
			require.LessOrEqual(t, len(m.Facts), limits.MaxFacts)
			seen := map[string]bool{}
			for _, f := range m.Facts {
				key := strings.ToLower(strings.TrimSpace(f.Content))
				require.False(t, seen[key], "seed %d: %q twice", seed, key)
				seen[key] = true
				require.GreaterOrEqual(t, f.Confidence, limits.Confidence)
				require.LessOrEqual(t, f.Confidence, 1.0)
				require.LessOrEqual(t, len(f.Content), maxContent)
			}
			for _, tokens := range []int{0, 10, 100, 2000} {
				require.LessOrEqual(t, len(m.Block(tokens)), tokens*charsPerToken)
			}
		}
	}
}

// Servers that share a folder learn each conversation once: one works, the others look again.
func TestOneServerLearns(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	l := learner(t, Limits{Confidence: 0.7, MaxFacts: 10}, func(context.Context, string) (string, error) {
		asked <- struct{}{}
		return fact("likes tea", 0.9), nil
	})
	require.Equal(t, idle, l.alone(t.Context()))
	require.NoError(t, l.Add(t.Context(), "ann", "t", []Turn{{User: true, Text: "tea"}}))
	other, err := os.OpenFile(filepath.Join(l.folder(), ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, flock.Try(other, false))
	require.Equal(t, soon, l.alone(t.Context()))
	require.Empty(t, asked)
	require.NoError(t, other.Close())
	require.Equal(t, idle, l.alone(t.Context()))
	require.Len(t, asked, 1)
	require.Zero(t, l.waits(t))
	require.Equal(t, idle, l.alone(t.Context()))
	require.Len(t, asked, 1)
}

// Each conversation rests by itself: one that others follow all the time is learned all the same.
func TestEachConversationRests(t *testing.T) {
	t.Parallel()
	var asked []string
	l := learner(t, Limits{Wait: time.Minute, Confidence: 0.7}, func(_ context.Context, prompt string) (string, error) {
		asked = append(asked, prompt)
		return "{}", nil
	})
	now := time.Now()
	l.Book.Now = func() time.Time { return now }
	require.NoError(t, l.Add(t.Context(), "ann", "t1", []Turn{{User: true, Text: "tea"}}))
	require.NoError(t, l.Add(t.Context(), "ann", "t2", []Turn{{User: true, Text: "coffee"}}))
	list, err := l.Queue.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	now = list[0].At.Add(30 * time.Second)
	require.InDelta(t, 30*time.Second, l.alone(t.Context()), float64(time.Second))
	require.Empty(t, asked)
	old := &waiting{User: "ann", Thread: "t1"}
	require.NoError(t, os.Chtimes(filepath.Join(l.folder(), old.name()+".json"), now, now.Add(-2*time.Minute)))
	require.InDelta(t, 30*time.Second, l.alone(t.Context()), float64(time.Second))
	require.Len(t, asked, 1)
	require.Contains(t, asked[0], "tea")
}

// What was said before a user had the memory forget everything is not learned, whether it waits or is being read.
func TestClearedMemory(t *testing.T) {
	t.Parallel()
	var l *Learner
	l = learner(t, Limits{Confidence: 0.7}, func(ctx context.Context, _ string) (string, error) {
		_, err := l.Book.Clear(ctx, "ann")
		return fact("likes tea", 0.9), err
	})
	require.NoError(t, l.Add(t.Context(), "ann", "t1", []Turn{{User: true, Text: "tea"}}))
	require.NoError(t, l.Add(t.Context(), "ann", "t2", []Turn{{User: true, Text: "tea"}}))
	require.Equal(t, idle, l.alone(t.Context()))
	require.Zero(t, l.waits(t))
	m, err := l.Book.Read(t.Context(), "ann")
	require.NoError(t, err)
	require.Empty(t, m.Facts)
	require.Equal(t, 1, m.Revision)

	l.Ask = func(context.Context, string) (string, error) { return fact("likes tea", 0.9), nil }
	require.NoError(t, l.Add(t.Context(), "ann", "t3", []Turn{{User: true, Text: "tea"}}))
	require.Equal(t, idle, l.alone(t.Context()))
	m, err = l.Book.Read(t.Context(), "ann")
	require.NoError(t, err)
	require.Len(t, m.Facts, 1)
}

// hangs are Documents of a database that does not answer.
type hangs struct{ asked chan struct{} }

func (h hangs) Load(ctx context.Context, _ string) (*Document, error) {
	h.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangs) Save(context.Context, string, *Document, []byte) (bool, error) { return false, nil }

// A change that is cancelled while another one hangs waits for it no longer.
func TestCancelledChangesDoNotWait(t *testing.T) {
	t.Parallel()
	h := hangs{make(chan struct{}, 2)}
	b := &Book{In: func(string) Documents { return h }, Now: time.Now}
	nothing := func(*Memory) error { return nil }
	first, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Change(first, "ann", nothing)
		ended <- err
	}()
	<-h.asked
	second, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Change(second, "ann", nothing)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, h.asked, "it was not its turn")
	end()
	require.ErrorIs(t, <-ended, context.Canceled)
}
