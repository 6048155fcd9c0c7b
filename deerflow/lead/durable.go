package lead

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/deerflow/sandbox"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Keys of the state with what the agent has to know although its messages were condensed.
const (
	delegationsKey  = "delegations"
	skillContextKey = "skill_context"
	summaryKey      = "summary_text"
)

// Bounds of these keys.
const (
	maxDelegations  = 50
	maxSkillContext = 8
	maxBrief        = 500 // characters of a result, and of the description of a skill
)

// delegation is a task that a subagent was given.
type delegation struct {
	ID          string `json:"id"` // of the call
	Run         string `json:"run_id,omitempty"`
	Description string `json:"description"`
	Type        string `json:"subagent_type"`
	Status      string `json:"status"` // in_progress, or how it ended
	Brief       string `json:"result_brief,omitempty"`
	Sum         string `json:"result_sha256,omitempty"`
	Ref         string `json:"result_ref,omitempty"`  // message with the whole result
	Stop        string `json:"stop_reason,omitempty"` // limit that ended it early
	Created     string `json:"created_at"`
}

const inProgress = "in_progress"

// addDelegations replaces entries under their IDs, and keeps the newest ones. What has ended does not begin again.
func addDelegations(current, update []delegation) []delegation {
	out := slices.Clone(current)
	for _, d := range update {
		at := slices.IndexFunc(out, func(have delegation) bool { return have.ID == d.ID })
		switch {
		case at < 0:
			out = append(out, d)
		case d.Status != inProgress || out[at].Status == inProgress:
			d.Created, d.Run = cmp.Or(out[at].Created, d.Created), cmp.Or(d.Run, out[at].Run)
			out[at] = d
		}
	}
	return out[max(len(out)-maxDelegations, 0):]
}

// skillEntry is a skill that the agent has read.
type skillEntry struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	Description string `json:"description"`
	Loaded      int    `json:"loaded_at"` // number of the message, when it was read
}

// addSkills moves skills to the end when they are read again, and keeps the newest ones.
func addSkills(current, update []skillEntry) []skillEntry {
	out := slices.Clone(current)
	for _, s := range update {
		out = append(slices.DeleteFunc(out, func(have skillEntry) bool { return have.Path == s.Path }), s)
	}
	return out[max(len(out)-maxSkillContext, 0):]
}

// begun returns the entry of a call of task that was just allowed.
func begun(ctx context.Context, c message.ToolCall) delegation {
	info, _ := pregel.Info(ctx)
	args := gjson.ParseBytes(c.Args)
	return delegation{
		ID: c.ID, Run: string(info.Run), Description: brief(args.Get("description").String()), Type: brief(args.Get("subagent_type").String()),
		Status: inProgress, Created: time.Now().UTC().Format(time.RFC3339Nano),
	}
}

func brief(text string) string {
	return sandbox.Head(strings.Join(strings.Fields(text), " "), maxBrief)
}

// ended returns the entry of a call of task with its result.
func ended(d delegation, m message.Message) delegation {
	about := gjson.GetManyBytes(m.AdditionalKwargs, statusKey, resultKey, errorKey, sumKey, stopKey)
	text := cmp.Or(about[1].String(), about[2].String(), m.Text())
	d.Status, d.Brief, d.Sum, d.Stop = cmp.Or(about[0].String(), "failed"), brief(text), cmp.Or(about[3].String(), digest(text)), about[4].String()
	d.Ref = cmp.Or(m.ID, m.ToolCallID)
	return d
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// durable lists, next to a summary, the tasks that the model gave and the skills that it read before: the messages with them are gone. Only requests have the list.
func durable() agent.Middleware {
	return agent.Middleware{
		Name: "DurableContextMiddleware",
		State: map[string]pregel.Channel{
			delegationsKey: pregel.Reducer(addDelegations), skillContextKey: pregel.Reducer(addSkills), summaryKey: pregel.LastValue(),
		},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			at := slices.IndexFunc(r.Messages, agent.IsSummary)
			if at < 0 {
				return next(ctx, r)
			}
			tasks, _, err := pregel.Get[[]delegation](r.State, delegationsKey)
			if err != nil {
				return agent.ModelResponse{}, fmt.Errorf("read delegations: %w", err)
			}
			skills, _, err := pregel.Get[[]skillEntry](r.State, skillContextKey)
			if err != nil {
				return agent.ModelResponse{}, fmt.Errorf("read skills: %w", err)
			}
			info, _ := pregel.Info(ctx)
			tasks = slices.Clone(tasks)
			for i := range tasks {
				if tasks[i].Status == inProgress && tasks[i].Run != string(info.Run) {
					tasks[i].Status = "interrupted" // with its run
				}
			}
			if text := forgotten(r.Messages, tasks, skills); text != "" {
				r.Messages = slices.Clone(r.Messages)
				r.Messages[at].Content = message.Text(r.Messages[at].Text() + "\n\n" + text)
			}
			return next(ctx, r)
		},
	}
}

// forgotten describes the tasks and skills whose calls are not among messages.
func forgotten(list []message.Message, tasks []delegation, skills []skillEntry) string {
	calls, paths := map[string]bool{}, map[string]bool{}
	for _, m := range list {
		for _, c := range m.ToolCalls {
			calls[c.ID] = true
			if c.Name == "read_file" {
				paths[gjson.GetBytes(c.Args, "path").String()] = true
			}
		}
	}
	var b strings.Builder
	section := func(tag string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "<%s>\n%s\n</%s>\n", tag, strings.Join(lines, "\n"), tag)
		}
	}
	var lines []string
	for _, d := range tasks {
		if !calls[d.ID] {
			status := d.Status
			if d.Stop != "" {
				status += ", but cut short by a limit (" + d.Stop + ")"
			}
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("- [%s] %s (%s): %s", status, d.Description, d.Type, d.Brief), ": "))
		}
	}
	section("earlier_tasks", lines)
	lines = nil
	for _, s := range skills {
		if !paths[s.Path] {
			lines = append(lines, fmt.Sprintf("- %s: %s Read %s again before you follow it.", s.Name, s.Description, s.Path))
		}
	}
	section("skills_read", lines)
	return strings.TrimSpace(b.String())
}

// skillRead returns the update for a call that has read the SKILL.md of a skill; nil for others.
func skillRead(r agent.ToolRequest, out agent.ToolResult, path func(*skill.Skill) string, skills []*skill.Skill) *pregel.Command {
	if r.Call.Name != "read_file" || out.Message == nil || out.Message.Status == message.StatusError {
		return nil
	}
	read := gjson.GetBytes(r.Call.Args, "path").String()
	at := slices.IndexFunc(skills, func(s *skill.Skill) bool { return path(s) == read })
	if at < 0 || strings.HasPrefix(out.Message.Text(), "Error: ") {
		return nil
	}
	entry := skillEntry{Name: skills[at].Name, Path: read, Description: brief(skills[at].Description), Loaded: len(agent.Messages(r.State))}
	return &pregel.Command{Update: pregel.Values{skillContextKey: []skillEntry{entry}}}
}
