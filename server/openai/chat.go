package openai

import (
	"strconv"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/answer"
)

// completion is what all parts of a chat completion say of it.
type completion struct {
	t   *Turn
	run *run.Run
}

func (c completion) head(dst []byte, object string) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), "chatcmpl-"+string(c.run.ID))
	dst = appendTime(append(dst, `,"object":"`+object+`","created":`...), c.run.CreatedAt)
	return jsonobj.AppendText(append(dst, `,"model":`...), c.t.Model)
}

// tail appends how to answer a question, if there is one.
func (c completion) tail(dst []byte, a *answer.Answer) []byte {
	if len(a.Questions()) == 0 {
		return dst
	}
	return append(appendInterrupt(append(dst, `,"interrupt":`...), a, c.t.Thread), '}')
}

// appendInterrupt appends an extension of OpenAI's answers: the questions that the run waits at, without the closing brace.
func appendInterrupt(dst []byte, a *answer.Answer, t id.Thread) []byte {
	how := "Send the answer as the next message of the user on the same thread: a text, or JSON"
	if t == "" {
		how = "The run had no thread and cannot be resumed. Send the header " + ThreadHeader + " with a UUID from the first message on"
	}
	dst = appendTextOrNull(append(dst, `{"thread_id":`...), string(t))
	dst = append(dst, `,"interrupts":[`...)
	for i, q := range a.Questions() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, q.Raw...)
	}
	return jsonobj.AppendText(append(dst, `],"answer":`...), how)
}

func appendChatUsage(dst []byte, a *answer.Answer) []byte {
	u := a.Usage()
	if !u.Known {
		return append(dst, "null"...)
	}
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), u.Input, 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), u.Output, 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), u.Total, 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	dst = strconv.AppendInt(append(dst, `},"completion_tokens_details":{"reasoning_tokens":`...), u.Reasoning, 10)
	return append(dst, "}}"...)
}

// AppendChat appends the answer to a chat completion that is not streamed.
func AppendChat(dst []byte, t *Turn, r *run.Run, a *answer.Answer) []byte {
	c := completion{t, r}
	dst = c.head(dst, "chat.completion")
	dst = jsonobj.AppendText(append(dst, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...), a.Text())
	dst = append(dst, `,"refusal":null},"logprobs":null,"finish_reason":"`+a.Reason()+`"}],"usage":`...)
	return append(c.tail(appendChatUsage(dst, a), a), '}')
}

// Events is the stream of an answer.
type Events interface {
	// Append appends what the client is sent for a record; nothing, when it is for the server.
	Append(dst []byte, r *bridge.Record) []byte
	// End appends the end of the stream: the run has ended.
	End(dst []byte) []byte
}

// chatEvents is the stream of a chat completion.
type chatEvents struct {
	completion
	a     *answer.Answer
	begun bool
	shown int // messages, of which the last may continue
}

// NewChat returns the stream of a chat completion.
func NewChat(t *Turn, r *run.Run, a *answer.Answer) Events {
	return &chatEvents{completion: completion{t, r}, a: a}
}

func (c *chatEvents) chunk(dst []byte, delta, finish string) []byte {
	dst = c.head(append(dst, "data: "...), "chat.completion.chunk")
	dst = append(append(dst, `,"choices":[{"index":0,"delta":`...), delta...)
	dst = appendTextOrNull(append(dst, `,"logprobs":null,"finish_reason":`...), finish)
	dst = append(dst, "}]"...)
	if c.t.includeUsage {
		dst = append(dst, `,"usage":null`...)
	}
	if finish != "" {
		dst = c.tail(dst, c.a)
	}
	return append(dst, "}\n\n"...)
}

// Append implements Events.
func (c *chatEvents) Append(dst []byte, r *bridge.Record) []byte {
	if !c.begun {
		c.begun = true
		dst = c.chunk(dst, `{"role":"assistant","content":"","refusal":null}`, "")
	}
	return c.say(dst, c.a.Add(r))
}

func (c *chatEvents) say(dst []byte, pieces []answer.Piece) []byte {
	for _, p := range pieces {
		text := p.Text
		if p.Message >= c.shown {
			if c.shown > 0 {
				text = "\n\n" + text
			}
			c.shown = p.Message + 1
		}
		dst = c.chunk(dst, string(append(jsonobj.AppendText([]byte(`{"content":`), text), '}')), "")
	}
	return dst
}

// End implements Events.
func (c *chatEvents) End(dst []byte) []byte {
	dst = c.say(dst, c.a.End())
	if why := c.a.Failed(); why != "" {
		dst = AppendError(append(dst, "data: "...), why, ErrorType(500), "", RunFailed)
		return append(dst, "\n\n"...)
	}
	dst = c.chunk(dst, "{}", c.a.Reason())
	if c.t.includeUsage {
		dst = c.head(append(dst, "data: "...), "chat.completion.chunk")
		dst = appendChatUsage(append(dst, `,"choices":[],"usage":`...), c.a)
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}
