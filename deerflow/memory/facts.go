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
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/regular"
	"understudy/internal/wholefile"
)

// maxFactFile bounds the file of a fact, in bytes.
const maxFactFile = 64 << 10

// Folders are memories as DeerFlow has them: the file memory.json, and, as newer releases write them, facts in Markdown files of their own, xx/fact_*.md. DeerFlow's own
// agent works on them at the same time.
type Folders struct {
	File  func(subject string) string // path of memory.json
	Facts func(subject string) string // folder of the facts
}

// manifest is memory.json as far as it concerns how facts are kept.
type manifest struct {
	stored
	Imported bool `json:"importedFacts,omitempty"` // files do not count: earlier releases of this program wrote it when they had put all facts into memory.json
}

// Load implements Documents. What it returns has all facts.
func (f *Folders) Load(_ context.Context, subject string) (*Document, error) {
	text, err := whole(f.File(subject))
	if err != nil {
		return nil, err
	}
	var m manifest
	if text == nil {
		m.Memory = *empty()
	} else if err := json.Unmarshal(text, &m); err != nil {
		return &Document{Text: text}, nil //nolint:nilerr // it is no memory, which its reader says
	}
	before := len(m.Facts)
	if !m.Imported {
		if err := m.join(f.Facts(subject)); err != nil {
			return nil, err
		}
	}
	if text == nil && len(m.Facts) == before {
		return nil, nil
	}
	if text, err = json.Marshal(m.stored); err != nil {
		return nil, err
	}
	return &Document{Text: text}, nil
}

// Save implements Documents: facts become files, as the agent of DeerFlow expects them.
func (f *Folders) Save(ctx context.Context, subject string, was *Document, text []byte) (done bool, err error) {
	next, err := parse(text)
	if err != nil {
		return false, err
	}
	path := f.File(subject)
	err = locked(ctx, path, func() error {
		now, err := f.Load(ctx, subject)
		if done = err == nil && same(now, was); !done {
			return err
		}
		if err := f.saveFacts(subject, next.Facts); err != nil {
			return err
		}
		next.Version, next.Facts = factsVersion, nil
		text, err := next.document()
		if err != nil {
			return err
		}
		return writeIndented(path, withoutFacts(text))
	})
	return done && err == nil, err
}

// factsVersion is the version of memory.json without facts.
const factsVersion = "2.0"

// withoutFacts leaves the key out: with it, DeerFlow moves facts into files again.
func withoutFacts(text []byte) []byte {
	o := jsonobj.Of(text)
	o.Delete("facts")
	return o.JSON()
}

// factFile is a fact in its file.
type factFile struct {
	Fact
	path string
	text []byte
}

// factFiles returns the facts in a folder, by id. A file that is no fact is passed over, as skills are.
func factFiles(folder string) (list []factFile, err error) {
	shards, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list the facts of a memory: %w", err)
	}
	for _, shard := range shards {
		if !shard.IsDir() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(folder, shard.Name()))
		if err != nil {
			return nil, fmt.Errorf("list the facts of a memory: %w", err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".md") || len(list) >= maxFacts {
				continue
			}
			path := filepath.Join(folder, shard.Name(), e.Name())
			text, err := regular.Read(path, maxFactFile)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("read a fact: %w", err)
			}
			if f, ok := parseFact(text); ok {
				list = append(list, factFile{f, path, text})
			}
		}
	}
	return list, nil
}

// join adds the facts of a folder that the memory does not have.
func (m *Memory) join(folder string) error {
	have := map[string]bool{}
	for _, f := range m.Facts {
		have[f.ID] = true
	}
	list, err := factFiles(folder)
	for _, f := range list {
		if !have[f.ID] && len(m.Facts) < maxFacts {
			have[f.ID] = true
			m.Facts = append(m.Facts, f.Fact)
		}
	}
	return err
}

// saveFacts makes the files those of these facts: it writes what is new or has changed, and deletes the rest.
func (f *Folders) saveFacts(subject string, facts []Fact) error {
	folder := f.Facts(subject)
	list, err := factFiles(folder)
	if err != nil {
		return err
	}
	have := map[string]factFile{}
	for _, one := range list {
		have[one.ID] = one
	}
	user, agent := Of(subject)
	for _, fact := range facts {
		if !factID.MatchString(fact.ID) {
			return fault.Newf(fault.Unprocessable, "The id of a fact has letters, digits, - and _ only: %q", fact.ID)
		}
		was, known := have[fact.ID]
		delete(have, fact.ID)
		if known && reflect.DeepEqual(was.Fact, fact) {
			continue
		}
		text, err := renderFact(fact, was.text, user, cmp.Or(agent, SharedAgent))
		if err != nil {
			return err
		}
		sum := sha256.Sum256([]byte(fact.ID))
		place := cmp.Or(was.path, filepath.Join(folder, hex.EncodeToString(sum[:1]), fact.ID+".md"))
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			return fmt.Errorf("write a fact: %w", err)
		}
		if err := wholefile.Replace(place, text, 0o600); err != nil {
			return fmt.Errorf("write a fact: %w", err)
		}
	}
	for _, gone := range have {
		if err := os.Remove(gone.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete a fact: %w", err)
		}
	}
	return nil
}

// SharedAgent is the name under which DeerFlow has facts that all agents of a user share.
const SharedAgent = "__default__"

var factID = regexp.MustCompile("^[A-Za-z0-9_-]{1,200}$")

// categories are those that DeerFlow has by name; others are categoryExtension.
var categories = []string{"preference", "correction", "context", "goal", "behavior", "identity", "constraint", "decision", "other"}

// sources are kinds of sources that name no thread.
var sources = []string{"manual", "consolidation", "import", "unknown"}

// renderFact writes a fact as newer releases of DeerFlow do. What the file of before says besides stays.
func renderFact(f Fact, was []byte, user, agent string) ([]byte, error) {
	front := map[string]any{"status": "active", "topics": []string{}, "consolidatedFrom": []string{}}
	if head, _, ok := cutFront(was); ok {
		if err := yaml.Unmarshal(head, &front); err != nil {
			return nil, fmt.Errorf("read a fact: %w", err)
		}
	}
	revision := 0
	_, _ = fmt.Sscan(fmt.Sprint(front["revision"]), &revision)
	stamp := Stamp(time.Now())
	source := map[string]any{"type": "conversation", "threadId": f.Source}
	if f.Source == "" || slices.Contains(sources, f.Source) {
		source = map[string]any{"type": cmp.Or(f.Source, "unknown"), "threadId": nil}
	}
	maps.Copy(front, map[string]any{
		"id": f.ID, "schemaVersion": 2, "category": f.Category, "confidence": f.Confidence, "createdAt": cmp.Or(f.CreatedAt, stamp), "updatedAt": stamp, "source": source,
		"revision": revision + 1, "user_id": user, "agent_name": agent,
	})
	delete(front, "categoryExtension")
	if !slices.Contains(categories, f.Category) {
		front["category"], front["categoryExtension"] = "other", f.Category
	}
	delete(front, "sourceError")
	if f.SourceError != nil {
		front["sourceError"] = *f.SourceError
	}
	var head bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(front)) { // JSON is YAML, in which times stay text
		value, err := json.Marshal(front[key])
		if err != nil {
			return nil, fmt.Errorf("encode a fact: %w", err)
		}
		fmt.Fprintf(&head, "%s: %s\n", key, value)
	}
	title, _, _ := strings.Cut(f.Content, "\n")
	if r := []rune(strings.TrimSpace(title)); len(r) > 160 {
		title = string(r[:160])
	}
	return fmt.Appendf(nil, "---\n%s---\n\n# %s\n\n%s\n", head.Bytes(), strings.TrimSpace(title), f.Content), nil
}

// cutFront separates the front matter of a fact from its text.
func cutFront(text []byte) (head, body []byte, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("---\n"))
	if !ok {
		return nil, nil, false
	}
	return bytes.Cut(rest, []byte("\n---\n"))
}

// parseFact reads a fact as newer releases of DeerFlow write it: front matter, a heading, the content.
func parseFact(text []byte) (f Fact, ok bool) {
	head, body, ok := cutFront(text)
	if !ok {
		return f, false
	}
	var front struct {
		ID          string  `yaml:"id"`
		Category    string  `yaml:"category"`
		Extension   string  `yaml:"categoryExtension"`
		Confidence  float64 `yaml:"confidence"`
		CreatedAt   string  `yaml:"createdAt"`
		SourceError *string `yaml:"sourceError"`
		Source      any     `yaml:"source"`
	}
	if yaml.Unmarshal(head, &front) != nil || front.ID == "" {
		return f, false
	}
	content := strings.TrimSpace(strings.ToValidUTF8(string(body), ""))
	if strings.HasPrefix(content, "# ") { // the title repeats the beginning of the content
		_, content, _ = strings.Cut(content, "\n")
		content = strings.TrimSpace(content)
	}
	if content == "" || len(content) > maxContent {
		return f, false
	}
	f = Fact{ID: front.ID, Content: content, Category: front.Category, Confidence: front.Confidence, CreatedAt: front.CreatedAt, Source: "unknown", SourceError: front.SourceError}
	if front.Extension != "" {
		f.Category = front.Extension
	}
	if f.Category == "" {
		f.Category = DefaultCategory
	}
	switch source := front.Source.(type) {
	case string:
		f.Source = source
	case map[string]any:
		kind, _ := source["type"].(string)
		thread, _ := source["threadId"].(string)
		if f.Source = kind; thread != "" {
			f.Source = thread
		}
	}
	return f, true
}
