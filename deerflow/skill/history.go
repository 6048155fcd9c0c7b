package skill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"understudy/internal/fault"
	"understudy/internal/wholefile"
)

// Change is one entry of the history of a custom skill.
type Change struct {
	Action   string  `json:"action"` // human_edit, human_delete, rollback; of agents: create, edit, patch, delete, write_file, remove_file
	Author   string  `json:"author"` // human or agent
	Thread   *string `json:"thread_id"`
	File     string  `json:"file_path"`
	Previous *string `json:"prev_content"`
	New      *string `json:"new_content"`
	Scanner  Verdict `json:"scanner"`
	Time     string  `json:"ts"`
}

const human = "human"

// requested is the verdict about what is removed.
var requested = Verdict{Decision: "allow", Reason: "Deletion requested."}

func missing(name string) error {
	return fault.Newf(fault.NotFound, "Custom skill '%s' not found", name)
}

// Read returns a custom skill of a user and the text of its SKILL.md.
func (l *Library) Read(user, name string) (*Skill, string, error) {
	s, err := l.Find(user, name)
	if fault.Is(err, fault.NotFound) || err == nil && s.Category != Custom {
		return nil, "", missing(name)
	} else if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", missing(name)
	} else if err != nil {
		return nil, "", fmt.Errorf("read skill %s: %w", name, err)
	}
	return s, string(text), nil
}

// Edit replaces the SKILL.md of a custom skill. Its name must stay.
func (l *Library) Edit(ctx context.Context, user, name, content string) error {
	return l.write(ctx, user, name, Change{Action: "human_edit", Author: human}, func(string) (string, error) { return content, nil })
}

// Rollback puts back what a change replaced; index as in History, from the end if negative.
func (l *Library) Rollback(ctx context.Context, user, name string, index int) error {
	changes, err := l.History(user, name)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fault.Newf(fault.Invalid, "Custom skill '%s' has no history", name)
	}
	if index < 0 {
		index += len(changes)
	}
	if index < 0 || index >= len(changes) {
		return fault.New(fault.Invalid, "history_index is out of range")
	}
	c := changes[index]
	if c.Previous == nil {
		return fault.New(fault.Invalid, "Selected history entry has no previous content to roll back to")
	}
	if c.File != File {
		return fault.Newf(fault.Invalid, "Selected history entry is of %s, and only %s can be rolled back", c.File, File)
	}
	return l.write(ctx, user, name, Change{Action: "rollback", Author: human}, func(string) (string, error) { return *c.Previous, nil })
}

// write replaces the SKILL.md of a custom skill by what revise makes of it. by says for the history who does what.
func (l *Library) write(ctx context.Context, user, name string, by Change, revise func(old string) (string, error)) error {
	_, old, err := l.Read(user, name)
	if err != nil {
		return err
	}
	content, err := revise(old)
	if err != nil {
		return err
	}
	if by.Scanner, err = l.vet(ctx, name, content); err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	s, old, err := l.Read(user, name)
	if err != nil {
		return err
	}
	if again, err := revise(old); err != nil || again != content { // what was judged is not what would be written
		return fault.Newf(fault.Conflict, "Skill '%s' was changed meanwhile; read it again", name)
	}
	if err := wholefile.Replace(filepath.Join(s.Dir, File), []byte(content), 0o644); err != nil {
		return fmt.Errorf("write skill %s: %w", name, err)
	}
	by.File, by.Previous, by.New = File, &old, &content
	return l.append(user, name, by)
}

// vet decides whether a text may be the SKILL.md of a skill.
func (l *Library) vet(ctx context.Context, name, content string) (Verdict, error) {
	front, err := Parse([]byte(content))
	if err != nil {
		return Verdict{}, &Refused{err.Error()}
	}
	if front.Name != name {
		return Verdict{}, refusedf("the name in the front matter must stay %q", name)
	}
	return l.judgeText(ctx, name, File, content, false)
}

// judgeText has one file judged that is about to be written.
func (l *Library) judgeText(ctx context.Context, name, file, content string, executable bool) (Verdict, error) {
	v, err := l.Judge(ctx, name+"/"+file, content, executable)
	if err != nil {
		l.Log.Warn("an edit of a skill could not be judged and was refused", "skill", name, "file", file, "error", err)
		return v, refusedf("Security scan failed, so the skill is not changed. Check the model that judges skills.")
	}
	if v.Decision == "block" || executable && v.Decision != "allow" {
		return v, refusedf("Security scan blocked the edit: %s", v.Reason)
	}
	return v, nil
}

// Delete removes a custom skill. Its history stays.
func (l *Library) Delete(user, name string) error {
	return l.remove(user, name, Change{Action: "human_delete", Author: human})
}

func (l *Library) remove(user, name string, by Change) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	s, old, err := l.Read(user, name)
	if err != nil {
		return err
	}
	by.File, by.Previous, by.Scanner = File, &old, requested
	if err := l.append(user, name, by); err != nil {
		return err
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("delete skill %s: %w", name, err)
	}
	return nil
}

func (l *Library) historyFile(user, name string) string {
	return filepath.Join(l.User(user), ".history", name+".jsonl")
}

// History returns the changes of a custom skill, oldest first.
func (l *Library) History(user, name string) ([]Change, error) {
	if !IsName(name) {
		return nil, missing(name)
	}
	f, err := os.Open(l.historyFile(user, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, _, err := l.Read(user, name); err != nil {
			return nil, err
		}
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the history of skill %s: %w", name, err)
	}
	defer f.Close()
	var list []Change
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16*maxMarkdown) // two texts, which JSON may make six times as long
	for lines.Scan() {
		var c Change
		if json.Unmarshal(lines.Bytes(), &c) == nil { // a line that a crash cut is left out
			list = append(list, c)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the history of skill %s: %w", name, err)
	}
	return list, nil
}

func (l *Library) append(user, name string, c Change) error {
	c.Time = l.Now().UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	file := l.historyFile(user, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	return nil
}
