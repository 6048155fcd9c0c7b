package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonobj"
)

// asText returns messages in which calls of tools and their results are text, in the form in which Qwen's models were trained, and content is text alone: the templates of MindIE
// know no others.
func asText(messages []llms.MessageContent) ([]llms.MessageContent, error) {
	out := make([]llms.MessageContent, 0, len(messages))
	for i, m := range messages {
		m, err := messageText(m)
		if err != nil {
			return nil, llm.InMessage(i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func messageText(m llms.MessageContent) (llms.MessageContent, error) {
	var texts, calls []string
	role := m.Role
	line := false // the last text stands on a line of its own
	add := func(text string, alone bool) {
		if len(texts) > 0 && (alone || line) {
			texts = append(texts, "\n")
		}
		texts, line = append(texts, text), alone
	}
	for _, p := range m.Parts {
		rich, ok := p.(llm.Part)
		if ok {
			if p = rich.ContentPart; p == nil && (rich.Block == nil || rich.Optional) && rich.Instead == "" {
				continue
			}
		}
		switch p := p.(type) {
		case llms.TextContent:
			add(p.Text, false)
		case llms.ToolCall:
			if p.FunctionCall == nil {
				return m, fmt.Errorf("tool call %s has no function", p.ID)
			}
			calls = append(calls, callText(p))
		case llms.ToolCallResponse:
			role = llms.ChatMessageTypeHuman
			add("<tool_response>\n"+p.Content+"\n</tool_response>", false)
		case nil, llms.ImageURLContent, llms.BinaryContent:
			if p != nil && role == llms.ChatMessageTypeAI { // a model's own image, which no client returns
				continue
			}
			text, err := dataText(p, rich)
			if err != nil {
				return m, err
			}
			add(text, true)
		default:
			return m, fmt.Errorf("%T cannot be sent as text", p)
		}
	}
	text := strings.Join(texts, "")
	if len(calls) > 0 {
		text = strings.TrimSpace(text + "\n" + strings.Join(calls, "\n"))
	}
	if strings.TrimSpace(text) == "" {
		text = " " // an empty message is an error
	}
	return llms.MessageContent{Role: role, Parts: []llms.ContentPart{llms.TextContent{Text: text}}}, nil
}

// dataText returns the text of a part that is not text, such as a document of text, or the text in its place.
func dataText(p llms.ContentPart, rich llm.Part) (string, error) {
	if p == nil && rich.Broken == "" {
		if _, block := native(rich); block["type"] == "text" {
			text, _ := block["text"].(string)
			return text, nil
		}
	}
	return rich.Without(cmp.Or(rich.Broken, "MindIE takes text only"))
}

func callText(c llms.ToolCall) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<tool_call> <function=%s>", c.FunctionCall.Name)
	gjson.Parse(c.FunctionCall.Arguments).ForEach(func(name, value gjson.Result) bool {
		fmt.Fprintf(&b, " <parameter=%s>%s</parameter>", name.Str, value.String())
		return true
	})
	b.WriteString(" </function> </tool_call>")
	return b.String()
}

var (
	calledText  = regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`)
	calledName  = regexp.MustCompile(`<function=([^>]+)>`)
	calledValue = regexp.MustCompile(`(?s)<parameter=([^>]+)>(.*?)</parameter>`)
	plainValue  = regexp.MustCompile(`(?s)^(true|false|null|-?[0-9]+(\.[0-9]+)?|[\[{].*)$`)
)

// textCalls returns the calls in an answer, and the answer without them. A block that names no function stays.
func textCalls(text string) (rest string, calls []llm.ToolCallDelta) {
	rest = calledText.ReplaceAllStringFunc(text, func(block string) string {
		name := calledName.FindStringSubmatch(block)
		if name == nil || len(calls) == maxCalls {
			return block
		}
		var args jsonobj.Object
		for _, m := range calledValue.FindAllStringSubmatch(block, -1) {
			value := strings.TrimSpace(m[2])
			if plainValue.MatchString(value) && json.Valid([]byte(value)) {
				args.Set(strings.TrimSpace(m[1]), json.RawMessage(value))
			} else {
				args.SetText(strings.TrimSpace(m[1]), value)
			}
		}
		calls = append(calls, llm.ToolCallDelta{Index: len(calls), ID: llm.NewCallID(), Name: strings.TrimSpace(name[1]), Arguments: string(args.JSON())})
		return ""
	})
	if len(calls) > 0 {
		rest = strings.TrimSpace(rest)
	}
	return rest, calls
}

// textDecoder reads an answer with calls as text: it has to be whole before it is known what is text.
type textDecoder struct {
	wire.Decoder
	whole bool // the answer may have calls
	text  strings.Builder
	lines newlines
	calls bool // of its own form
	ended llm.Chunk
}

func (d *textDecoder) take(c llm.Chunk) llm.Chunk {
	if !d.whole {
		c.Content = d.lines.read(c.Content, c.FinishReason != "")
		return c
	}
	d.text.WriteString(c.Content)
	c.Content = ""
	d.calls = d.calls || len(c.ToolCalls) > 0
	if c.FinishReason != "" { // for the last chunk, which knows whether there are calls
		d.ended.FinishReason, d.ended.Fingerprint, d.ended.Metadata = c.FinishReason, c.Fingerprint, c.Metadata
		c.FinishReason, c.Fingerprint, c.Metadata = "", "", nil
	}
	return c
}

func (d *textDecoder) Event(name string, data []byte) (llm.Chunk, bool, error) {
	c, _, err := d.Decoder.Event(name, data)
	c = d.take(c)
	return c, !c.Empty() || c.Model != "", err
}

func (d *textDecoder) Whole(data []byte) (llm.Chunk, error) {
	c, err := d.Decoder.Whole(data)
	return d.take(c), err
}

func (d *textDecoder) Last() (llm.Chunk, bool) {
	c, ok := d.Decoder.Last()
	if !d.whole {
		return c, ok
	}
	ended := d.ended
	ended.Usage = c.Usage
	text := d.lines.read(d.text.String(), true)
	if d.calls {
		ended.Content = text
		return ended, true
	}
	if ended.Content, ended.ToolCalls = textCalls(text); len(ended.ToolCalls) > 0 {
		ended.FinishReason = "tool_calls"
	}
	return ended, true
}

// newlines puts line breaks in place of the two characters \n, which MindIE's gateway sends, except in blocks of code.
type newlines struct {
	rest  string // what may be the beginning of \n or of the mark of a block
	inner bool   // of a block
}

const codeMark = "```"

// read returns a piece of the text; last: nothing follows.
func (l *newlines) read(piece string, last bool) string {
	text := l.rest + piece
	l.rest = ""
	var out strings.Builder
	for i := 0; i < len(text); {
		tail := text[i:]
		switch {
		case !last && (tail == `\` || len(tail) < len(codeMark) && strings.HasPrefix(codeMark, tail)):
			l.rest = tail
			return out.String()
		case strings.HasPrefix(tail, codeMark):
			l.inner = !l.inner
			out.WriteString(codeMark)
			i += len(codeMark)
		case !l.inner && strings.HasPrefix(tail, `\n`):
			out.WriteByte('\n')
			i += 2
		default:
			out.WriteByte(text[i])
			i++
		}
	}
	return out.String()
}
