package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"understudy/internal/regular"
)

// maxFactFile bounds the file of a fact, in bytes.
const maxFactFile = 64 << 10

// join adds the facts of a folder, xx/fact_*.md, that the memory does not have. A file that is no fact is passed over, as skills are.
func (m *Memory) join(folder string) error {
	have := map[string]bool{}
	for _, f := range m.Facts {
		have[f.ID] = true
	}
	shards, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("list the facts of a memory: %w", err)
	}
	for _, shard := range shards {
		if !shard.IsDir() {
			continue
		}
		list, err := os.ReadDir(filepath.Join(folder, shard.Name()))
		if err != nil {
			return fmt.Errorf("list the facts of a memory: %w", err)
		}
		for _, e := range list {
			if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".md") || len(m.Facts) >= maxFacts {
				continue
			}
			text, err := regular.Read(filepath.Join(folder, shard.Name(), e.Name()), maxFactFile)
			if err != nil {
				return fmt.Errorf("read a fact: %w", err)
			}
			if f, ok := parseFact(text); ok && !have[f.ID] {
				have[f.ID] = true
				m.Facts = append(m.Facts, f)
			}
		}
	}
	return nil
}

// parseFact reads a fact as newer releases of DeerFlow write it: front matter, a heading, the content.
func parseFact(text []byte) (f Fact, ok bool) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return f, false
	}
	head, body, ok := bytes.Cut(rest, []byte("\n---\n"))
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
