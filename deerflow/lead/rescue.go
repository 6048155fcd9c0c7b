package lead

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
)

// skillReads keeps the newest reads of skills when a conversation is condensed: without them the model would follow a skill of which it knows only a summary.
type skillReads struct {
	path string // of skills, as the agent knows them
	set  settings.Summarization
	// What may stay, or the conversation would be condensed again at once.
	tokens, messages int
}

// rescuing returns the reads to keep for a way to condense conversations.
func rescuing(s *settings.Settings, o agent.SummarizationOptions) func([]message.Message) []message.Message {
	r := skillReads{path: s.Skills.ContainerPath, set: s.Summarization, tokens: s.Summarization.SkillTokens, messages: 1000}
	for _, t := range o.Trigger {
		if t.Tokens > 0 {
			r.tokens = min(r.tokens, t.Tokens/2)
		}
		if t.Fraction > 0 {
			r.tokens = min(r.tokens, int(t.Fraction*float64(o.Model.MaxInputTokens))/2)
		}
		if t.Messages > 0 {
			r.messages = min(r.messages, (t.Messages-o.Keep.Messages-1)/2)
		}
	}
	return r.rescue
}

// read is a message that calls nothing but reads of skills, with its results.
type read struct {
	messages []message.Message
	paths    []string
	tokens   int // of all
	largest  int // of one result
}

// rescue returns the messages that stay.
func (r skillReads) rescue(list []message.Message) []message.Message {
	left, room, count := r.tokens, r.messages, r.set.SkillCount
	var kept []read
	seen := map[string]bool{}
	for i := len(list) - 1; i >= 0 && count > 0; i-- {
		one, ok := r.at(list, i)
		if !ok || one.tokens > left || one.largest > r.set.SkillEach || len(one.messages) > room || len(one.paths) > count || slices.ContainsFunc(one.paths, func(p string) bool { return seen[p] }) {
			continue
		}
		for _, p := range one.paths {
			seen[p] = true
		}
		left, room, count, kept = left-one.tokens, room-len(one.messages), count-len(one.paths), append(kept, one)
	}
	slices.Reverse(kept)
	var out []message.Message
	for _, one := range kept {
		out = append(out, one.messages...)
	}
	return out
}

// at returns the read that begins at a message.
func (r skillReads) at(list []message.Message, i int) (one read, ok bool) {
	calls := map[string]bool{}
	for _, c := range list[i].ToolCalls {
		path := gjson.GetBytes(c.Args, "path").String()
		if !slices.Contains(r.set.SkillTools, c.Name) || !strings.HasPrefix(path, strings.TrimSuffix(r.path, "/")+"/") || !strings.HasSuffix(path, "/"+skill.File) {
			return read{}, false
		}
		calls[c.ID], one.paths = true, append(one.paths, path)
	}
	if len(calls) == 0 {
		return read{}, false
	}
	one.messages = []message.Message{list[i]}
	for _, m := range list[i+1:] {
		if m.Type != message.TypeTool || !calls[m.ToolCallID] {
			break
		}
		tokens := agent.Tokens(m)
		one.tokens, one.largest = one.tokens+tokens, max(one.largest, tokens)
		one.messages = append(one.messages, m)
	}
	return one, len(one.messages) == len(calls)+1
}
