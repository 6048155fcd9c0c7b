// Package memory keeps what is remembered of each user: short summaries and facts, a document for each user and agent, in the store of the server or in files.
package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"understudy/internal/fault"
)

// Memory is what is remembered of one user, as it is stored and shown.
type Memory struct {
	Version     string             `json:"version"`
	Revision    int                `json:"revision"`
	LastUpdated string             `json:"lastUpdated"`
	User        map[string]Section `json:"user"`    // workContext, personalContext, topOfMind
	History     map[string]Section `json:"history"` // recentMonths, earlierContext, longTermBackground
	Facts       []Fact             `json:"facts"`

	learned string    // the last conversation that was learned from
	cleared time.Time // nothing is learned of what was said before
}

// stored is a memory as its document has it, with what is of no interest to people.
type stored struct {
	Memory
	Learned string    `json:"learned,omitempty"`
	Cleared time.Time `json:"cleared,omitzero"`
}

// Section is one summary.
type Section struct {
	Summary   string `json:"summary"`
	UpdatedAt string `json:"updatedAt"`
}

// Fact is one thing that is known.
type Fact struct {
	ID          string  `json:"id"`
	Content     string  `json:"content"`
	Category    string  `json:"category"`
	Confidence  float64 `json:"confidence"`
	CreatedAt   string  `json:"createdAt"`
	Source      string  `json:"source"` // manual, or the id of the thread it was learned in
	SourceError *string `json:"sourceError,omitempty"`
}

// Sections of Memory.User and Memory.History.
var (
	UserSections    = []string{"workContext", "personalContext", "topOfMind"}
	HistorySections = []string{"recentMonths", "earlierContext", "longTermBackground"}
)

const version = "1.0"

// DefaultCategory is that of facts which name none.
const DefaultCategory = "context"

// Bounds.
const (
	maxContent = 8 << 10
	maxFacts   = 10_000
	maxText    = 32 << 20 // bytes of a document
)

// Stamp is a time as memories have it.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Subject returns the name under which a Book keeps the memory that a user's agent has of the user; agent "": the one that all others share.
func Subject(user, agent string) string {
	if agent == "" {
		return user
	}
	return user + "\x00" + agent
}

// Of returns what a Subject is made of.
func Of(subject string) (user, agent string) {
	user, agent, _ = strings.Cut(subject, "\x00")
	return user, agent
}

// errUnreadable is the cause for a document that is no memory: people can write their files, and their items of the store.
var errUnreadable = errors.New("no memory")

// parse reads the document of a memory.
func parse(text []byte) (*Memory, error) {
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fault.Wrap(fault.Conflict, "The memory cannot be read: delete it, or import another one in its place", fmt.Errorf("%w: %w", errUnreadable, err))
	}
	m := s.Memory
	m.learned, m.cleared = s.Learned, s.Cleared
	m.complete()
	return &m, nil
}

func (m *Memory) document() ([]byte, error) {
	return json.Marshal(stored{*m, m.learned, m.cleared})
}

// empty is the memory of a user of whom nothing is known.
func empty() *Memory {
	m := &Memory{}
	m.complete()
	return m
}

// complete adds what every memory has.
func (m *Memory) complete() {
	if m.Version == "" {
		m.Version = version
	}
	m.User = sections(m.User, UserSections)
	m.History = sections(m.History, HistorySections)
	if m.Facts == nil {
		m.Facts = []Fact{}
	}
}

func sections(have map[string]Section, names []string) map[string]Section {
	all := make(map[string]Section, len(names))
	for _, n := range names {
		all[n] = have[n]
	}
	return all
}

// Clear forgets everything about a user, also what was said and is not learned yet.
func (b *Book) Clear(ctx context.Context, user string) (*Memory, error) {
	return b.change(ctx, user, true, func(m *Memory) error {
		m.User, m.History, m.Facts = nil, nil, nil
		m.cleared = b.Now().UTC()
		return nil
	})
}

// Replace puts another memory in place of that of a user.
func (b *Book) Replace(ctx context.Context, user string, with *Memory) (*Memory, error) {
	if len(with.Facts) > maxFacts {
		return nil, fault.Newf(fault.Unprocessable, "More than %d facts", maxFacts)
	}
	return b.change(ctx, user, true, func(m *Memory) error {
		m.User, m.History = with.User, with.History
		m.Facts = slices.Clone(with.Facts)
		for i := range m.Facts {
			if m.Facts[i].ID == "" {
				m.Facts[i].ID = newID()
			}
		}
		return nil
	})
}

// Edit is what a client may say of a fact; nil is left as it is.
type Edit struct {
	Content    *string
	Category   *string
	Confidence *float64
}

var (
	errBlank = fault.New(fault.Invalid, "Memory fact content cannot be empty.")
	errSame  = fault.New(fault.Conflict, "A fact with the same content already exists.")
)

func errUnknown(fact string) error {
	return fault.Newf(fault.NotFound, "Memory fact '%s' not found.", fact)
}

// Add adds a fact that a person entered.
func (b *Book) Add(ctx context.Context, user string, e Edit) (*Memory, error) {
	return b.Change(ctx, user, func(m *Memory) error {
		if len(m.Facts) >= maxFacts {
			return fault.Newf(fault.Unprocessable, "More than %d facts", maxFacts)
		}
		f := Fact{ID: newID(), Category: DefaultCategory, Confidence: 0.5, CreatedAt: Stamp(b.Now()), Source: "manual"}
		if err := e.apply(m, &f); err != nil {
			return err
		}
		m.Facts = append(m.Facts, f)
		return nil
	})
}

// errFull is the error for a fact that is the least certain of too many.
var errFull = fault.New(fault.Unprocessable, "The fact was not kept: there are as many as memory.max_facts allows, and all are more certain.")

// Keep adds a fact that an agent learned in a thread, and returns its ID. Above most facts those of least confidence go; 0: no limit.
func (b *Book) Keep(ctx context.Context, user string, e Edit, thread string, most int) (fact string, err error) {
	_, err = b.Change(ctx, user, func(m *Memory) error {
		f := Fact{ID: newID(), Confidence: 0.5, CreatedAt: Stamp(b.Now()), Source: thread}
		if err := e.apply(m, &f); err != nil {
			return err
		}
		m.Facts = append(m.Facts, f)
		if m.trim(most); m.find(f.ID) < 0 {
			return errFull
		}
		fact = f.ID
		return nil
	})
	return fact, err
}

// trim removes the facts of least confidence above a number; 0: none.
func (m *Memory) trim(most int) {
	over := len(m.Facts) - cmp.Or(max(most, 0), maxFacts)
	if over <= 0 {
		return
	}
	weakest := slices.Clone(m.Facts)
	slices.SortStableFunc(weakest, func(a, b Fact) int { return cmp.Compare(a.Confidence, b.Confidence) })
	gone := map[string]bool{}
	for _, f := range weakest[:over] {
		gone[f.ID] = true
	}
	m.Facts = slices.DeleteFunc(m.Facts, func(f Fact) bool { return gone[f.ID] })
}

// Search returns facts that have words of a query, of a category ("": all). Those with more of the words are first, then those of more confidence. A query without
// words finds all.
func (m *Memory) Search(query, category string, most int) []Fact {
	words := terms(strings.ToLower(query))
	type hit struct {
		Fact
		words int
	}
	var hits []hit
	for _, f := range m.Facts {
		if category != "" && f.Category != category {
			continue
		}
		n, text := 0, strings.ToLower(f.Content)
		for _, w := range words {
			if strings.Contains(text, w) {
				n++
			}
		}
		if n > 0 || len(words) == 0 {
			hits = append(hits, hit{f, n})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.words, a.words), cmp.Compare(b.Confidence, a.Confidence))
	})
	found := []Fact{}
	for _, h := range hits[:min(len(hits), most)] {
		found = append(found, h.Fact)
	}
	return found
}

// terms returns the words of a query. Where words have no spaces between them, each pair of characters is one.
func terms(query string) (list []string) {
	for _, word := range strings.Fields(query) {
		runes := []rune(word)
		if len(runes) < 3 || !slices.ContainsFunc(runes, func(r rune) bool { return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) }) {
			list = append(list, word)
			continue
		}
		for i := range len(runes) - 1 {
			list = append(list, string(runes[i:i+2]))
		}
	}
	return list
}

// Edit changes a fact.
func (b *Book) Edit(ctx context.Context, user, fact string, e Edit) (*Memory, error) {
	return b.Change(ctx, user, func(m *Memory) error {
		i := m.find(fact)
		if i < 0 {
			return errUnknown(fact)
		}
		return e.apply(m, &m.Facts[i])
	})
}

// Delete forgets a fact.
func (b *Book) Delete(ctx context.Context, user, fact string) (*Memory, error) {
	return b.Change(ctx, user, func(m *Memory) error {
		i := m.find(fact)
		if i < 0 {
			return errUnknown(fact)
		}
		m.Facts = slices.Delete(m.Facts, i, i+1)
		return nil
	})
}

func (m *Memory) find(fact string) int {
	return slices.IndexFunc(m.Facts, func(f Fact) bool { return f.ID == fact })
}

// Has reports whether a fact other than that with an id says the same.
func (m *Memory) has(content, except string) bool {
	key := strings.ToLower(strings.TrimSpace(content))
	return slices.ContainsFunc(m.Facts, func(f Fact) bool {
		return f.ID != except && strings.ToLower(strings.TrimSpace(f.Content)) == key
	})
}

func (e Edit) apply(m *Memory, f *Fact) error {
	if e.Content != nil {
		content := strings.TrimSpace(*e.Content)
		switch {
		case content == "":
			return errBlank
		case len(content) > maxContent:
			return fault.Newf(fault.Unprocessable, "The content has more than %d bytes", maxContent)
		case m.has(content, f.ID):
			return errSame
		}
		f.Content = content
	}
	if e.Category != nil {
		f.Category = strings.TrimSpace(*e.Category)
	}
	if f.Category == "" {
		f.Category = DefaultCategory
	}
	if e.Confidence != nil {
		f.Confidence = *e.Confidence
	}
	return nil
}

func newID() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return "fact_" + hex.EncodeToString(b[:])
}
