package memory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/internal/flock"
)

// Bounds of learning.
const (
	maxTurn  = 1000 // characters of a message that the model reads
	maxTurns = 40   // messages of a conversation that it reads, the newest
	maxTries = 3    // of a conversation
	retry    = time.Minute
	soon     = time.Second // to the next look at a folder in which another server learns
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

// Learner learns from conversations what to remember of their users. What waits to be learned is in files, so that it survives a restart.
//
// It is safe for concurrent use.
type Learner struct {
	Book *Book
	Dir  string // of the files that wait
	// Ask sends a prompt to a model and returns its answer.
	Ask func(ctx context.Context, prompt string) (string, error)
	// Limits are read whenever something is learned.
	Limits func() Limits
	Log    *slog.Logger

	mu   sync.Mutex
	wake chan struct{} // made by Run or Add

	files sync.Mutex // while one that waits is replaced or deleted
}

// waiting is a conversation that waits to be learned from.
type waiting struct {
	User, Thread string
	Turns        []Turn
	Tries        int
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
func (l *Learner) Add(user, thread string, turns []Turn) error {
	if len(turns) == 0 {
		return nil
	}
	turns = slices.Clone(turns[max(0, len(turns)-maxTurns):])
	for i := range turns {
		if r := []rune(turns[i].Text); len(r) > maxTurn {
			turns[i].Text = string(r[:maxTurn]) + "…"
		}
	}
	if err := l.put(&waiting{User: user, Thread: thread, Turns: turns}); err != nil {
		return err
	}
	select {
	case l.signal() <- struct{}{}:
	default:
	}
	return nil
}

// file is where a conversation waits. Names are hashed: they come from outside, and may be long.
func (l *Learner) file(w *waiting) string {
	sum := sha256.Sum256([]byte(w.User + "\x00" + w.Thread))
	return filepath.Join(l.Dir, hex.EncodeToString(sum[:])+".json")
}

func (l *Learner) put(w *waiting) error {
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("queue a conversation: %w", err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("queue a conversation: %w", err)
	}
	f, err := os.CreateTemp(l.Dir, ".new-*")
	if err != nil {
		return fmt.Errorf("queue a conversation: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		l.files.Lock()
		err = os.Rename(f.Name(), l.file(w))
		l.files.Unlock()
	}
	if err != nil {
		return fmt.Errorf("queue a conversation: %w", err)
	}
	return nil
}

// drop deletes a conversation that waited, unless it has changed since it was read.
func (l *Learner) drop(path string, read []byte) (changed bool, err error) {
	l.files.Lock()
	defer l.files.Unlock()
	if now, err := os.ReadFile(path); err == nil && !bytes.Equal(now, read) {
		return true, nil
	}
	return false, os.Remove(path)
}

// Run learns until ctx ends. What is left then, the next start learns.
func (l *Learner) Run(ctx context.Context) error {
	wake := l.signal()
	timer := time.NewTimer(0) // what an earlier process left
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			timer.Reset(l.Limits().Wait)
		case <-timer.C:
			if after := l.alone(ctx); after > 0 && ctx.Err() == nil {
				timer.Reset(after)
			}
		}
	}
}

// folders are those of Learners in this process, each with a place for one that works: while an agent is replaced by another one, both have the same folder.
var folders sync.Map // of chan struct{}

// alone does work while no other Learner works in the folder, in this process or in another server's. after is when there is more to do; 0: nothing.
func (l *Learner) alone(ctx context.Context) (after time.Duration) {
	place, _ := folders.LoadOrStore(l.Dir, make(chan struct{}, 1))
	taken := place.(chan struct{})
	select {
	case taken <- struct{}{}:
		defer func() { <-taken }()
	case <-ctx.Done():
		return retry
	}
	if _, err := os.Stat(l.Dir); errors.Is(err, fs.ErrNotExist) {
		return 0 // nothing ever waited
	}
	lock, err := os.OpenFile(filepath.Join(l.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close()
		err = flock.Try(lock, false)
	}
	switch {
	case errors.Is(err, flock.ErrLocked):
		return soon
	case err != nil: // of a file system without locks: two servers may learn the same twice
		l.Log.Warn("conversations that wait for the memory cannot be locked", "folder", l.Dir, "error", err)
	}
	if l.work(ctx) {
		return retry
	}
	return 0
}

// work learns from all that waits, one after the other. again: something failed, and is worth another try.
func (l *Learner) work(ctx context.Context) (again bool) {
	list, err := os.ReadDir(l.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Log.Error("conversations that wait for the memory cannot be listed", "folder", l.Dir, "error", err)
		return true
	}
	for _, e := range list {
		if ctx.Err() != nil {
			return true
		}
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(l.Dir, e.Name())
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var w waiting
		if err == nil {
			err = json.Unmarshal(text, &w)
		}
		if err == nil {
			err = l.learn(ctx, &w)
		}
		if ctx.Err() != nil {
			return true
		}
		if err != nil {
			if w.Tries++; w.User != "" && w.Tries < maxTries {
				l.Log.Warn("nothing was learned from a conversation; trying again", "thread_id", w.Thread, "try", w.Tries, "of", maxTries, "after", retry, "error", err)
				if now, read := os.ReadFile(path); read == nil && bytes.Equal(now, text) { // a newer one has its own tries
					if err := l.put(&w); err != nil {
						l.Log.Error("a conversation that waits for the memory cannot be written", "file", path, "error", err)
					}
				}
				again = true
				continue
			}
			l.Log.Warn("nothing was learned from a conversation; giving up", "thread_id", w.Thread, "error", err)
		}
		changed, err := l.drop(path, text)
		again = again || changed
		if err != nil {
			l.Log.Error("a conversation that was learned from cannot be deleted", "file", path, "error", err)
		}
	}
	return again
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
	same.Tries = 0
	text, _ := json.Marshal(same) // it has strings only
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// learn asks the model, and applies its answer. An answer that cannot be read changes nothing, and is no reason to ask again.
func (l *Learner) learn(ctx context.Context, w *waiting) error {
	now, err := l.Book.Read(w.User)
	if err != nil {
		return err
	}
	mark := w.mark()
	if now.learned == mark {
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
	_, err = l.Book.Change(w.User, func(m *Memory) error {
		if m.learned == mark { // by another server meanwhile
			return nil
		}
		m.learned = mark
		thread, _, _ := strings.Cut(w.Thread, Part)
		l.apply(m, &got, thread)
		return nil
	})
	return err
}

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
