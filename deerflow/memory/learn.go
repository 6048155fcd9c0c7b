package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of learning.
const (
	maxTurn  = 1000 // characters of a message that the model reads
	maxTurns = 40   // messages of a conversation that it reads, the newest
	maxTries = 3    // of a conversation
	retry    = time.Minute
	soon     = time.Second     // to the next look at a queue on which another server works
	idle     = 2 * time.Minute // to the next look at a queue: another server may have left something
)

// Part separates the ID of a thread from what distinguishes a part of its conversation, such as one that was condensed: both wait, and are learned.
const Part = "#"

// Turn is one message of a conversation.
type Turn struct {
	User bool   `json:"user"` // else of the agent
	Text string `json:"text"`
}

// Limits say what is learned.
type Limits struct {
	Wait       time.Duration // of rest, before what was said is worked off
	Confidence float64       // that a fact needs
	MaxFacts   int           // those of least confidence go
}

// Learner learns from conversations what to remember of their users. It is safe for concurrent use, and several servers may share its Queue and the memories.
type Learner struct {
	Book  *Book
	Queue Queue
	// Ask sends a prompt to a model and returns its answer.
	Ask func(ctx context.Context, prompt string) (string, error)
	// Limits are read whenever something is learned.
	Limits func() Limits
	Log    *slog.Logger

	mu   sync.Mutex
	wake chan struct{} // made by Run or Add
}

// waiting is a conversation that waits to be learned from.
type waiting struct {
	User, Thread string
	Turns        []Turn
	Tries        int
	At           time.Time // when it was queued
}

func (l *Learner) signal() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	return l.wake
}

// Add queues a conversation, in place of what waits of the same thread.
func (l *Learner) Add(ctx context.Context, user, thread string, turns []Turn) error {
	if len(turns) == 0 {
		return nil
	}
	turns = slices.Clone(turns[max(0, len(turns)-maxTurns):])
	for i := range turns {
		if r := []rune(turns[i].Text); len(r) > maxTurn {
			turns[i].Text = string(r[:maxTurn]) + "…"
		}
	}
	w := &waiting{User: user, Thread: thread, Turns: turns, At: l.Book.Now().UTC()}
	text, err := json.Marshal(w)
	if err == nil {
		err = l.Queue.Put(ctx, user, w.name(), text)
	}
	if err != nil {
		return fmt.Errorf("queue a conversation: %w", err)
	}
	select {
	case l.signal() <- struct{}{}:
	default:
	}
	return nil
}

// name is under which a conversation waits. Names are hashed: they come from outside, and may be long.
func (w *waiting) name() string {
	sum := sha256.Sum256([]byte(w.User + "\x00" + w.Thread))
	return hex.EncodeToString(sum[:])
}

// Run learns until ctx ends. What is left then, the next start learns, or another server.
func (l *Learner) Run(ctx context.Context) error {
	wake := l.signal()
	timer := time.NewTimer(0) // what an earlier process left
	defer timer.Stop()
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			if at := time.Now().Add(l.Limits().Wait); at.Before(next) {
				next = at
				timer.Reset(time.Until(at))
			}
		case <-timer.C:
			after := l.alone(ctx)
			next = time.Now().Add(after)
			timer.Reset(after)
		}
	}
}

// alone learns from what has waited long enough, while no other Learner works on the queue, in this process or in another server's. It returns when to look again.
func (l *Learner) alone(ctx context.Context) (after time.Duration) {
	var due []Entry
	held, release, err := l.Queue.Hold(ctx) // first: the queue may be long, and one at a time is enough that lists it
	if err == nil {
		if held == nil {
			return soon
		}
		defer release()
		due, after, err = l.due(held)
	}
	if err != nil {
		if ctx.Err() == nil {
			l.Log.Warn("conversations that wait for the memory cannot be looked at; trying again", "after", retry, "error", err)
		}
		return retry
	}
	for _, e := range due {
		if held.Err() != nil {
			return soon
		}
		if l.one(held, e) {
			after = min(after, retry)
		}
	}
	return after
}

// due returns what has waited long enough, the oldest first, and when there may be more.
func (l *Learner) due(ctx context.Context) (due []Entry, after time.Duration, err error) {
	list, err := l.Queue.List(ctx)
	rest, after := l.Limits().Wait, idle
	for _, e := range list {
		if age := l.Book.Now().Sub(e.At); -rest < age && age < rest {
			after = min(after, rest-age)
		} else {
			due = append(due, e)
		}
	}
	slices.SortStableFunc(due, func(a, b Entry) int { return a.At.Compare(b.At) })
	return due, after, err
}

// one learns from a conversation. again: it waits still.
func (l *Learner) one(ctx context.Context, e Entry) (again bool) {
	was, err := l.Queue.Load(ctx, e)
	if was == nil && err == nil {
		return false
	}
	var w waiting
	if err == nil {
		err = json.Unmarshal(was.Text, &w)
	}
	if err == nil {
		err = l.learn(ctx, &w, func() (bool, error) {
			now, err := l.Queue.Load(ctx, e)
			return same(now, was), err
		})
	}
	if ctx.Err() != nil || was == nil {
		return true
	}
	var next []byte // nil: it is done
	if err != nil {
		if w.Tries++; w.User != "" && w.Tries < maxTries {
			l.Log.Warn("nothing was learned from a conversation; trying again", "thread_id", w.Thread, "try", w.Tries, "of", maxTries, "after", retry, "error", err)
			if next, err = json.Marshal(w); err != nil {
				next = nil
			}
		} else {
			l.Log.Warn("nothing was learned from a conversation; giving up", "thread_id", w.Thread, "error", err)
		}
	}
	done, err := l.Queue.Swap(ctx, e, was, next)
	if err != nil && ctx.Err() == nil {
		l.Log.Error("a conversation that was learned from remains in the queue", "thread_id", w.Thread, "error", err)
	}
	return !done || next != nil // it has changed meanwhile: a newer one has its own tries
}

const learnPrompt = `You are the memory management system of an assistant. Update what is remembered of the user after the conversation below.

Remember what stays true beyond this conversation: preferences, knowledge, the user's work and goals, how they want things done, and corrections of what the assistant did wrong, with the mistake. Do not remember uploads of files, secrets, or what was only asked for now.

What is remembered now:
%s

Conversation:
%s

Answer with one JSON object and nothing else:
{"user":{"workContext":{"summary":"","shouldUpdate":false},"personalContext":{…},"topOfMind":{…}},
"history":{"recentMonths":{…},"earlierContext":{…},"longTermBackground":{…}},
"newFacts":[{"content":"","category":"preference|knowledge|context|behavior|goal|correction","confidence":0.0,"sourceError":null,"scope":"user","durability":"durable","authority":"descriptive"}],
"factsToRemove":["id"]}
A summary has one to three sentences; shouldUpdate says whether it replaces the one there. Facts about anything but the user have another scope, and passing ones another durability.`

// learned is the answer of the model.
type learned struct {
	User, History map[string]struct {
		Summary      string `json:"summary"`
		ShouldUpdate bool   `json:"shouldUpdate"`
	}
	NewFacts []struct {
		Content     string  `json:"content"`
		Category    string  `json:"category"`
		Confidence  float64 `json:"confidence"`
		SourceError *string `json:"sourceError"`
		Scope       string  `json:"scope"`
		Durability  string  `json:"durability"`
		Authority   string  `json:"authority"`
	} `json:"newFacts"`
	FactsToRemove []string `json:"factsToRemove"`
}

// thinking is what models put around their thoughts.
var thinking = regexp.MustCompile(`(?s)<think(?:ing)?>.*?</think(?:ing)?>`)

// mark names a conversation in the memory that was learned from it. A process that is killed between writing the memory and deleting the conversation leaves both: then
// another answer of the model, in other words, would add the same again.
func (w *waiting) mark() string {
	same := *w
	same.Tries, same.At = 0, time.Time{}
	text, _ := json.Marshal(same) // it has strings only
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// learn asks the model, and applies its answer if the conversation waits still: a model may take minutes, in which the user can be deleted. An answer that cannot be read
// changes nothing, and is no reason to ask again.
func (l *Learner) learn(ctx context.Context, w *waiting, waits func() (bool, error)) error {
	now, err := l.Book.Read(ctx, w.User)
	if err != nil {
		return err
	}
	mark := w.mark()
	if now.learned == mark || w.before(now.cleared) {
		return nil
	}
	known, err := json.Marshal(now)
	if err != nil {
		return err
	}
	var talk strings.Builder
	for _, t := range w.Turns {
		who := "Assistant"
		if t.User {
			who = "User"
		}
		fmt.Fprintf(&talk, "%s: %s\n", who, t.Text)
	}
	answer, err := l.Ask(ctx, fmt.Sprintf(learnPrompt, known, talk.String()))
	if err != nil {
		return err
	}
	answer = thinking.ReplaceAllString(answer, "")
	from, to := strings.IndexByte(answer, '{'), strings.LastIndexByte(answer, '}')
	var got learned
	if from < 0 || to < from || json.Unmarshal([]byte(answer[from:to+1]), &got) != nil {
		l.Log.Warn("the model's answer about the memory cannot be read; nothing changes", "thread_id", w.Thread)
		return nil
	}
	_, err = l.Book.Change(ctx, w.User, func(m *Memory) error {
		if still, err := waits(); err != nil {
			return err
		} else if !still || m.learned == mark || w.before(m.cleared) { // by another server meanwhile
			return errNothing
		}
		m.learned = mark
		thread, _, _ := strings.Cut(w.Thread, Part)
		l.apply(m, &got, thread)
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// errNothing leaves a memory as it is.
var errNothing = errors.New("nothing to learn")

// before reports whether a conversation was queued before a time.
func (w *waiting) before(t time.Time) bool { return !w.At.IsZero() && w.At.Before(t) }

func (l *Learner) apply(m *Memory, got *learned, thread string) {
	limits, stamp := l.Limits(), Stamp(l.Book.Now())
	for _, name := range UserSections {
		if s := got.User[name]; s.ShouldUpdate && strings.TrimSpace(s.Summary) != "" {
			m.User[name] = Section{Summary: s.Summary, UpdatedAt: stamp}
		}
	}
	for _, name := range HistorySections {
		if s := got.History[name]; s.ShouldUpdate && strings.TrimSpace(s.Summary) != "" {
			m.History[name] = Section{Summary: s.Summary, UpdatedAt: stamp}
		}
	}
	m.Facts = slices.DeleteFunc(m.Facts, func(f Fact) bool { return slices.Contains(got.FactsToRemove, f.ID) })
	for _, f := range got.NewFacts {
		content := strings.TrimSpace(f.Content)
		if f.Scope != "user" || f.Durability != "durable" || f.Authority != "descriptive" || f.Confidence < limits.Confidence || f.Confidence > 1 ||
			content == "" || len(content) > maxContent || m.has(content, "") {
			continue
		}
		m.Facts = append(m.Facts, Fact{
			ID: newID(), Content: content, Category: cmp.Or(strings.TrimSpace(f.Category), "context"), Confidence: f.Confidence, CreatedAt: stamp, Source: thread, SourceError: f.SourceError,
		})
	}
	m.trim(limits.MaxFacts)
}

// Block returns what an agent is shown of a memory, within a number of tokens; "": there is nothing.
func (m *Memory) Block(tokens int) string {
	var b strings.Builder
	section := func(title string, have map[string]Section, names, titles []string) {
		first := true
		for i, name := range names {
			if s := strings.TrimSpace(have[name].Summary); s != "" {
				if first {
					b.WriteString(title + "\n")
					first = false
				}
				b.WriteString("- " + titles[i] + ": " + s + "\n")
			}
		}
	}
	section("User Context:", m.User, UserSections, []string{"Work", "Personal", "Current Focus"})
	section("History:", m.History, HistorySections, []string{"Recent", "Earlier", "Background"})
	facts := slices.Clone(m.Facts)
	slices.SortStableFunc(facts, func(a, b Fact) int { return cmp.Compare(b.Confidence, a.Confidence) })
	for i, f := range facts {
		line := fmt.Sprintf("- [%s | %.2f] %s", f.Category, f.Confidence, f.Content)
		if f.SourceError != nil && *f.SourceError != "" {
			line += " (avoid: " + *f.SourceError + ")"
		}
		if i == 0 {
			line = "Facts:\n" + line
		}
		if (b.Len()+len(line))/charsPerToken > tokens {
			break
		}
		b.WriteString(line + "\n")
	}
	text := strings.TrimSpace(b.String())
	if most := tokens * charsPerToken; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// charsPerToken estimates the tokens of a text, low rather than high.
const charsPerToken = 4
