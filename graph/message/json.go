package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// AppendJSON appends the message as the API shows it.
func (m Message) AppendJSON(b []byte) []byte {
	b = append(b, `{"content":`...)
	b = m.Content.AppendJSON(b)
	b = append(b, `,"additional_kwargs":`...)
	b = appendObject(b, m.AdditionalKwargs)
	b = append(b, `,"response_metadata":`...)
	b = appendObject(b, m.ResponseMetadata)
	b = append(b, `,"type":`...)
	b = jsonobj.AppendText(b, m.Type)
	b = append(b, `,"name":`...)
	b = appendText(b, m.Name)
	b = append(b, `,"id":`...)
	b = appendText(b, m.ID)
	switch m.Type {
	case TypeAI, TypeAIChunk:
		b = append(b, `,"tool_calls":[`...)
		for i, c := range m.ToolCalls {
			b = c.append(comma(b, i))
		}
		b = append(b, `],"invalid_tool_calls":[`...)
		for i, c := range m.InvalidToolCalls {
			b = c.append(comma(b, i))
		}
		b = append(b, `],"usage_metadata":`...)
		b = m.Usage.append(b)
		if m.Type == TypeAIChunk {
			b = append(b, `,"tool_call_chunks":[`...)
			for i, c := range m.ToolCallChunks {
				b = c.append(comma(b, i))
			}
			b = append(b, `],"chunk_position":`...)
			if m.Last {
				b = append(b, `"last"`...)
			} else {
				b = append(b, "null"...)
			}
		}
	case TypeTool, TypeToolChunk:
		b = append(b, `,"tool_call_id":`...)
		b = jsonobj.AppendText(b, m.ToolCallID)
		b = append(b, `,"artifact":`...)
		b = appendRaw(b, m.Artifact, "null")
		b = append(b, `,"status":`...)
		status := m.Status
		if status == "" {
			status = StatusSuccess
		}
		b = jsonobj.AppendText(b, status)
	case TypeChat, TypeChatChunk:
		b = append(b, `,"role":`...)
		b = jsonobj.AppendText(b, m.Role)
	}
	for _, f := range m.Extra {
		b = append(jsonobj.AppendText(append(b, ','), f.Name), ':')
		b = appendRaw(b, f.Value, "null")
	}
	return append(b, '}')
}

// MarshalJSON returns the message as the API shows it.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(make([]byte, 0, 256)), nil }

// UnmarshalJSON reads a message as the API shows it, and whatever Parse takes in its place.
func (m *Message) UnmarshalJSON(raw []byte) error {
	read, err := Parse(raw)
	if err != nil {
		return err
	}
	*m = read
	return nil
}

// AppendJSON appends a content.
func (c Content) AppendJSON(b []byte) []byte {
	if c.Blocks == nil {
		return jsonobj.AppendText(b, c.Text)
	}
	b = append(b, '[')
	for i, block := range c.Blocks {
		b = appendRaw(comma(b, i), block, "null")
	}
	return append(b, ']')
}

func (c ToolCall) append(b []byte) []byte {
	b = append(b, `{"name":`...)
	b = jsonobj.AppendText(b, c.Name)
	b = append(b, `,"args":`...)
	b = appendObject(b, c.Args)
	b = append(b, `,"id":`...)
	b = appendText(b, c.ID)
	return append(b, `,"type":"tool_call"}`...)
}

func (c InvalidToolCall) append(b []byte) []byte {
	b = append(b, `{"name":`...)
	b = appendText(b, c.Name)
	b = append(b, `,"args":`...)
	b = appendText(b, c.Args)
	b = append(b, `,"id":`...)
	b = appendText(b, c.ID)
	b = append(b, `,"error":`...)
	b = appendText(b, c.Error)
	return append(b, `,"type":"invalid_tool_call"}`...)
}

func (c ToolCallChunk) append(b []byte) []byte {
	b = append(b, `{"name":`...)
	b = appendText(b, c.Name)
	b = append(b, `,"args":`...)
	if c.NoArgs {
		b = append(b, "null"...)
	} else {
		b = jsonobj.AppendText(b, c.Args)
	}
	b = append(b, `,"id":`...)
	b = appendText(b, c.ID)
	b = append(b, `,"index":`...)
	if c.Index == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(*c.Index), 10)
	}
	return append(b, `,"type":"tool_call_chunk"}`...)
}

func (u *Usage) append(b []byte) []byte {
	if u == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, u.InputTokens, 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, u.OutputTokens, 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, u.TotalTokens, 10)
	if u.InputDetails != nil {
		b = append(b, `,"input_token_details":`...)
		b = appendRaw(b, u.InputDetails, "{}")
	}
	if u.OutputDetails != nil {
		b = append(b, `,"output_token_details":`...)
		b = appendRaw(b, u.OutputDetails, "{}")
	}
	return append(b, '}')
}

// Read reads a message as the API shows it. raw must be valid JSON. ok is false when it is not such an object: it lacks `type`
// or `content`, or its type is none of the Type constants.
func Read(raw []byte) (m Message, ok bool) {
	doc := gjson.ParseBytes(raw)
	if !doc.IsObject() {
		return m, false
	}
	hasContent := false
	doc.ForEach(func(k, v gjson.Result) bool {
		switch k.String() {
		case "content":
			m.Content, hasContent = readContent(v), true
		case "additional_kwargs":
			m.AdditionalKwargs = readObject(v)
		case "response_metadata":
			m.ResponseMetadata = readObject(v)
		case "type":
			m.Type = v.String()
		case "name":
			m.Name = v.String()
		case "id":
			m.ID = v.String()
		case "tool_calls":
			m.ToolCalls = readCalls(v)
		case "invalid_tool_calls":
			v.ForEach(func(_, c gjson.Result) bool {
				m.InvalidToolCalls = append(m.InvalidToolCalls, InvalidToolCall{
					Name: c.Get("name").String(), Args: c.Get("args").String(), ID: c.Get("id").String(), Error: c.Get("error").String(),
				})
				return true
			})
		case "usage_metadata":
			m.Usage = readUsage(v)
		case "tool_call_chunks":
			v.ForEach(func(_, c gjson.Result) bool {
				m.ToolCallChunks = append(m.ToolCallChunks, readCallChunk(c))
				return true
			})
		case "chunk_position":
			m.Last = v.String() == "last"
		case "tool_call_id":
			m.ToolCallID = v.String()
		case "artifact":
			if v.Type != gjson.Null {
				m.Artifact = rawOf(v)
			}
		case "status":
			m.Status = v.String()
		case "role":
			m.Role = v.String()
		default:
			m.Extra = append(m.Extra, Field{k.String(), rawOf(v)})
		}
		return true
	})
	return m, hasContent && knownType(m.Type)
}

func knownType(t string) bool {
	switch t {
	case TypeHuman, TypeAI, TypeSystem, TypeTool, TypeFunction, TypeChat, TypeRemove, TypeAIChunk, TypeHumanChunk, TypeSystemChunk,
		TypeToolChunk, TypeFunctionChunk, TypeChatChunk:
		return true
	}
	return false
}

func readContent(v gjson.Result) Content {
	if !v.IsArray() {
		return Text(v.String())
	}
	c := Content{Blocks: []json.RawMessage{}}
	v.ForEach(func(_, block gjson.Result) bool {
		c.Blocks = append(c.Blocks, rawOf(block))
		return true
	})
	return c
}

// readObject returns an object's bytes; nil when it is empty or none.
func readObject(v gjson.Result) json.RawMessage {
	if !v.IsObject() || len(v.Raw) == 2 {
		return nil
	}
	return rawOf(v)
}

func readCalls(v gjson.Result) (calls []ToolCall) {
	v.ForEach(func(_, c gjson.Result) bool {
		calls = append(calls, ToolCall{Name: c.Get("name").String(), Args: readObject(c.Get("args")), ID: c.Get("id").String()})
		return true
	})
	return calls
}

func readCallChunk(c gjson.Result) ToolCallChunk {
	out := ToolCallChunk{
		Name: c.Get("name").String(), Args: c.Get("args").String(), ID: c.Get("id").String(), NoArgs: c.Get("args").Type == gjson.Null,
	}
	if index := c.Get("index"); index.Type == gjson.Number {
		n := int(index.Int())
		out.Index = &n
	}
	return out
}

func readUsage(v gjson.Result) *Usage {
	if !v.IsObject() {
		return nil
	}
	u := &Usage{InputTokens: v.Get("input_tokens").Int(), OutputTokens: v.Get("output_tokens").Int(), TotalTokens: v.Get("total_tokens").Int()}
	if d := v.Get("input_token_details"); d.IsObject() {
		u.InputDetails = rawOf(d)
	}
	if d := v.Get("output_token_details"); d.IsObject() {
		u.OutputDetails = rawOf(d)
	}
	return u
}

// rawOf returns the bytes of a value, compact.
func rawOf(v gjson.Result) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, []byte(v.Raw)) != nil {
		return json.RawMessage("null")
	}
	return b.Bytes()
}

func blockText(raw json.RawMessage) string {
	v := gjson.ParseBytes(raw)
	if v.Type == gjson.String {
		return v.Str
	}
	if v.Get("type").Str == "text" {
		return v.Get("text").String()
	}
	return ""
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func appendRaw(b []byte, raw json.RawMessage, empty string) []byte {
	if len(raw) == 0 {
		return append(b, empty...)
	}
	return append(b, raw...)
}

func appendObject(b []byte, raw json.RawMessage) []byte { return appendRaw(b, raw, "{}") }

// appendText appends a string, or null for "".
func appendText(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return jsonobj.AppendText(b, text)
}

// Parse reads a message as the API shows it, with all fields of its class, and else what Convert takes.
func Parse(raw []byte) (Message, error) {
	if !jsonscan.Valid(raw) {
		return Message{}, fmt.Errorf("a message is not valid JSON")
	}
	v := gjson.ParseBytes(raw)
	if v.IsObject() && v.Get("additional_kwargs").Exists() && v.Get("response_metadata").Exists() && !v.Get("role").Exists() {
		if m, ok := Read(raw); ok {
			return m, nil
		}
	}
	return convert(v)
}

// Convert reads what LangChain's convert_to_messages takes for a message: an object with a role or type and a content, in LangChain's
// own form or OpenAI's, whose unknown fields go to additional_kwargs; a list of a role and a content; or text, which is a person's.
// Anything else is an error. A chunk becomes the message it is a chunk of.
func Convert(raw []byte) (Message, error) {
	if !jsonscan.Valid(raw) {
		return Message{}, fmt.Errorf("a message is not valid JSON")
	}
	return convert(gjson.ParseBytes(raw))
}

func convert(v gjson.Result) (Message, error) {
	switch {
	case v.Type == gjson.String:
		return Human(v.Str), nil
	case v.IsArray():
		pair := v.Array()
		if len(pair) != 2 || pair[0].Type != gjson.String {
			return Message{}, fmt.Errorf("message as a sequence must be (role string, template)")
		}
		return fromFields(pair[0].Str, readContent(pair[1]), gjson.Result{})
	case v.IsObject():
		return fromObject(v)
	}
	return Message{}, fmt.Errorf("unsupported message type: %s", short([]byte(v.Raw)))
}

// classes are the names of message classes in constructor envelopes.
var classes = map[string]string{
	"HumanMessage": TypeHuman, "HumanMessageChunk": TypeHuman, "AIMessage": TypeAI, "AIMessageChunk": TypeAI,
	"SystemMessage": TypeSystem, "SystemMessageChunk": TypeSystem, "FunctionMessage": TypeFunction, "FunctionMessageChunk": TypeFunction,
	"ToolMessage": TypeTool, "ToolMessageChunk": TypeTool, "RemoveMessage": TypeRemove,
}

func fromObject(v gjson.Result) (Message, error) {
	if v.Get("lc").Raw == "1" && v.Get("type").Str == "constructor" && v.Get("kwargs").IsObject() {
		if path := v.Get("id").Array(); len(path) > 0 {
			if kind, ok := classes[path[len(path)-1].String()]; ok {
				kwargs := v.Get("kwargs")
				return fromFields(kind, readContent(kwargs.Get("content")), kwargs)
			}
		}
	}
	role, content := v.Get("role"), v.Get("content")
	if !role.Exists() {
		role = v.Get("type")
	}
	if !role.Exists() || !content.Exists() {
		return Message{}, fmt.Errorf("message dict must contain 'role' and 'content' keys, got %s", short([]byte(v.Raw)))
	}
	return fromFields(role.String(), readContent(content), v)
}

// fromFields makes a message of a role, its content and further fields, as LangChain's convert_to_messages: fields that it does not
// know go to additional_kwargs.
func fromFields(role string, content Content, v gjson.Result) (Message, error) {
	m := Message{Content: content}
	byRole := v.Get("role").Exists()
	var extra, given []Field
	var bad error
	v.ForEach(func(k, f gjson.Result) bool {
		switch key := k.String(); key {
		case "content":
		case "role":
		case "type":
			if byRole {
				extra = append(extra, Field{key, rawOf(f)})
			}
		case "name":
			m.Name = f.String()
		case "id":
			m.ID = f.String()
		case "tool_call_id":
			m.ToolCallID = f.String()
		case "tool_calls":
			if f.IsArray() {
				m.ToolCalls, bad = anyCalls(f)
			}
		case "response_metadata":
			m.ResponseMetadata = readObject(f)
		case "additional_kwargs":
			f.ForEach(func(k, f gjson.Result) bool {
				given = append(given, Field{k.String(), rawOf(f)})
				return true
			})
		default:
			extra = append(extra, Field{key, rawOf(f)})
		}
		return bad == nil
	})
	if bad != nil {
		return Message{}, bad
	}
	for _, f := range given {
		extra = setField(extra, f)
	}
	switch role {
	case "human", "user":
		m.Type = TypeHuman
	case "ai", "assistant":
		m.Type = TypeAI
	case "system":
		m.Type = TypeSystem
	case "developer":
		m.Type = TypeSystem
		extra = setField(extra, Field{"__openai_role__", json.RawMessage(`"developer"`)})
	case "function":
		m.Type = TypeFunction
	case "tool":
		m.Type, m.Status = TypeTool, StatusSuccess
		rest := extra[:0]
		for _, f := range extra {
			switch f.Name {
			case "artifact":
				if string(f.Value) != "null" {
					m.Artifact = f.Value
				}
			case "status":
				if s := gjson.ParseBytes(f.Value); s.Type == gjson.String {
					m.Status = s.Str
				}
			default:
				rest = append(rest, f)
			}
		}
		extra = rest
	case "remove":
		return Message{Type: TypeRemove, ID: m.ID, AdditionalKwargs: object(extra), ResponseMetadata: m.ResponseMetadata}, nil
	default:
		return Message{}, fmt.Errorf("unexpected message type: '%s'. Use one of 'human', 'user', 'ai', 'assistant', 'function', 'tool', "+
			"'system', or 'developer'", short([]byte(role)))
	}
	if m.Type != TypeAI {
		m.ToolCalls = nil
	}
	m.AdditionalKwargs = object(extra)
	return m, nil
}

// anyCalls reads tool calls in LangChain's form and in OpenAI's.
func anyCalls(v gjson.Result) (calls []ToolCall, err error) {
	v.ForEach(func(_, c gjson.Result) bool {
		f := c.Get("function")
		if !f.Exists() {
			calls = append(calls, ToolCall{Name: c.Get("name").String(), Args: readObject(c.Get("args")), ID: c.Get("id").String()})
			return true
		}
		args := f.Get("arguments")
		if args.Type == gjson.String {
			if !jsonscan.Valid([]byte(args.Str)) {
				err = fmt.Errorf("arguments of tool call %s are not valid JSON", short([]byte(f.Get("name").String())))
				return false
			}
			args = gjson.Parse(args.Str)
		}
		calls = append(calls, ToolCall{Name: f.Get("name").String(), Args: readObject(args), ID: c.Get("id").String()})
		return true
	})
	return calls, err
}

func setField(fields []Field, f Field) []Field {
	for i := range fields {
		if fields[i].Name == f.Name {
			fields[i].Value = f.Value
			return fields
		}
	}
	return append(fields, f)
}

// object returns fields as a JSON object; nil when there are none.
func object(fields []Field) json.RawMessage {
	if len(fields) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i, f := range fields {
		b = append(append(jsonobj.AppendText(comma(b, i), f.Name), ':'), f.Value...)
	}
	return append(b, '}')
}

// short bounds what an error repeats.
func short(raw []byte) string {
	const most = 200
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "…"
	}
	return string(raw)
}
