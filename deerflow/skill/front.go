package skill

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// File is the name of the file that makes a folder a skill.
const File = "SKILL.md"

// Front is what a SKILL.md says about itself at its beginning.
type Front struct {
	Name        string
	Description string
	License     string   // "" not said
	Tools       []string // that the skill may use; nil: not said
}

// Bounds of front matter.
const (
	maxName        = 64
	maxDescription = 1024 // characters
	maxMarkdown    = 1 << 20
)

var (
	nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	keys     = []string{"name", "description", "license", "allowed-tools", "metadata", "compatibility", "version", "author"}
)

// IsName reports whether a skill may have a name.
func IsName(name string) bool { return len(name) <= maxName && nameForm.MatchString(name) }

// Parse reads the front matter of a SKILL.md. The error says what is wrong with it, for its author.
func Parse(text []byte) (*Front, error) {
	if len(text) > maxMarkdown {
		return nil, fmt.Errorf("%s is larger than %d MiB", File, maxMarkdown>>20)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s is not UTF-8 text", File)
	}
	head, err := matter(text)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := yaml.Unmarshal(head, &m); err != nil {
		return nil, fmt.Errorf("invalid YAML in the front matter of %s: %s", File, strings.SplitN(yaml.FormatError(err, false, false), "\n", 2)[0])
	}
	for key := range m {
		if !slices.Contains(keys, key) {
			return nil, fmt.Errorf("unexpected key %q in the front matter of %s; allowed are %s", key, File, strings.Join(keys, ", "))
		}
	}
	f := &Front{}
	if f.Name, err = text1(m, "name", true); err != nil {
		return nil, err
	}
	if !IsName(f.Name) {
		return nil, fmt.Errorf("the name %q must have up to %d lower-case letters, digits and single hyphens", f.Name, maxName)
	}
	if f.Description, err = text1(m, "description", true); err != nil {
		return nil, err
	}
	switch {
	case utf8.RuneCountInString(f.Description) > maxDescription:
		return nil, fmt.Errorf("the description has more than %d characters", maxDescription)
	case strings.ContainsAny(f.Description, "<>"):
		return nil, errors.New("the description must not contain angle brackets")
	}
	if f.License, err = text1(m, "license", false); err != nil {
		return nil, err
	}
	return f, f.tools(m["allowed-tools"])
}

func (f *Front) tools(v any) error {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	f.Tools = []string{}
	for _, t := range list {
		name, isText := t.(string)
		ok = ok && isText
		f.Tools = append(f.Tools, name)
	}
	if !ok {
		return errors.New("allowed-tools must be a list of names")
	}
	return nil
}

// text1 returns the text under a key.
func text1(m map[string]any, key string, required bool) (string, error) {
	v, ok := m[key]
	if !ok || v == nil {
		if required {
			return "", fmt.Errorf("%s needs %q in its front matter", File, key)
		}
		return "", nil
	}
	s, ok := v.(string)
	if s = strings.TrimSpace(s); !ok || required && s == "" {
		return "", fmt.Errorf("%q in the front matter of %s must be text", key, File)
	}
	return s, nil
}

// matter returns what stands between the lines --- at the beginning.
func matter(text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return nil, fmt.Errorf("%s does not begin with front matter (a line ---)", File)
	}
	if bytes.HasPrefix(rest, []byte("---\n")) {
		return nil, nil
	}
	head, _, ok := bytes.Cut(rest, []byte("\n---"))
	if !ok {
		return nil, fmt.Errorf("the front matter of %s has no end (a line ---)", File)
	}
	return head, nil
}
