package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Add returns the message that the chunks a and b, in this order, are parts of, as the addition of LangChain's AIMessageChunk does: text is
// joined, blocks and tool calls with the same index are merged, counts are summed. Tool calls are read from their parts as far as they
// have come. Objects whose fields have other types in a than in b cannot be added: an error.
func Add(a, b Message) (Message, error) { return add(a, b, false) }

// add is Add. With sum it does not read tool calls, and keeps the first of two fields that cannot be added.
func add(a, b Message, sum bool) (Message, error) {
	out := Message{Type: a.Type, Name: a.Name, Role: a.Role, ToolCallID: a.ToolCallID, Artifact: a.Artifact, Status: a.Status, Extra: a.Extra}
	if a.Type != b.Type {
		return out, fmt.Errorf("cannot add a %s to a %s", b.Type, a.Type)
	}
	var err error
	if out.Content, err = addContent(a.Content, b.Content); err != nil {
		if !sum {
			return out, fmt.Errorf("add content: %w", err)
		}
		out.Content = Content{Blocks: slices.Concat(a.Content.Blocks, b.Content.Blocks)}
	}
	if out.AdditionalKwargs, err = addObjects(a.AdditionalKwargs, b.AdditionalKwargs); err != nil {
		if !sum {
			return out, fmt.Errorf("add additional_kwargs: %w", err)
		}
		out.AdditionalKwargs = a.AdditionalKwargs
	}
	if out.ResponseMetadata, err = addObjects(a.ResponseMetadata, b.ResponseMetadata); err != nil {
		if !sum {
			return out, fmt.Errorf("add response_metadata: %w", err)
		}
		out.ResponseMetadata = a.ResponseMetadata
	}
	if a.Type != TypeAIChunk {
		out.ID = a.ID
		if b.Status == StatusError {
			out.Status = StatusError
		}
		if out.Artifact == nil {
			out.Artifact = b.Artifact
		}
		return out, nil
	}
	out.Name, out.Extra = "", nil
	out.ID = betterID(a.ID, b.ID)
	out.Last = a.Last || b.Last
	out.Usage = addUsage(a.Usage, b.Usage)
	out.ToolCallChunks = addCalls(a.ToolCallChunks, b.ToolCallChunks)
	if len(out.ToolCallChunks) > 0 && !sum {
		out.readCalls()
	}
	return out, nil
}

// Sum adds chunks in their order, and is Add of all of them, in less time: chunks of about the same size are added to each other. Of
// fields that cannot be added it keeps the first. The zero value is empty. It is not safe for concurrent use.
type Sum struct{ parts []sumPart }

// sumPart is the sum of 1<<level chunks.
type sumPart struct {
	level int
	m     Message
}

// Add adds a chunk of the model.
func (s *Sum) Add(m Message) {
	s.parts = append(s.parts, sumPart{0, m})
	for n := len(s.parts); n > 1 && s.parts[n-2].level == s.parts[n-1].level; n = len(s.parts) {
		s.join()
		s.parts[n-2].level++
	}
}

// join adds the last part to the one before.
func (s *Sum) join() {
	n := len(s.parts)
	s.parts[n-2].m, _ = add(s.parts[n-2].m, s.parts[n-1].m, true) // with sum, only types of messages differ
	s.parts = s.parts[:n-1]
}

// Message returns the sum; a chunk without content when nothing was added. Its tool calls are read as those of a complete answer.
func (s *Sum) Message() Message {
	for len(s.parts) > 1 {
		s.join()
	}
	if len(s.parts) == 0 {
		return AIChunk("")
	}
	m := s.parts[0].m
	m.Complete()
	return m
}

// Partial returns what has been added so far, as Add of all of it does: tool calls are read as far as they have come. More may be added after.
func (s *Sum) Partial() Message {
	for len(s.parts) > 1 {
		s.join()
	}
	if len(s.parts) == 0 {
		return AIChunk("")
	}
	m := s.parts[0].m
	if len(m.ToolCallChunks) > 0 {
		m.readCalls()
	}
	return m
}

// Complete reads the tool calls of a chunk from its parts as those of a complete answer: what breaks off within its arguments is invalid.
func (m *Message) Complete() {
	m.ToolCalls, m.InvalidToolCalls = nil, nil
	for _, c := range m.ToolCallChunks {
		args, err := Arguments(c.Args)
		if err == nil && c.Name != "" {
			m.ToolCalls = append(m.ToolCalls, ToolCall{Name: c.Name, Args: args, ID: c.ID})
			continue
		}
		invalid := InvalidToolCall{Name: c.Name, Args: c.Args, ID: c.ID}
		if err != nil {
			invalid.Error = err.Error()
		}
		m.InvalidToolCalls = append(m.InvalidToolCalls, invalid)
	}
}

// maxArguments bounds how deep arguments may be nested: storages keep messages with about a thousand levels in all.
const maxArguments = 900

// Arguments reads the arguments of a tool call, and returns them compact. "" is an empty object. Like LangChain, it accepts control
// characters in texts, which models write.
func Arguments(text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("{}"), nil
	}
	var object map[string]json.RawMessage
	raw := []byte(text)
	err := json.Unmarshal(raw, &object)
	if err != nil {
		raw = escapeControls(raw)
		err = json.Unmarshal(raw, &object)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the arguments are not a JSON object: %w", err)
	case object == nil:
		return nil, errors.New("the arguments are null")
	case jsonscan.DeeperThan(raw, maxArguments):
		return nil, fmt.Errorf("the arguments are nested more than %d levels deep", maxArguments)
	}
	var out bytes.Buffer
	_ = json.Compact(&out, raw) // it is valid
	return out.Bytes(), nil
}

// escapeControls escapes the control characters in the texts of a JSON value.
func escapeControls(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+16)
	inString, escaped := false, false
	for _, c := range raw {
		switch {
		case inString && c < 0x20 && !escaped:
			if at := strings.IndexByte("\b\f\n\r\t", c); at >= 0 {
				out = append(out, '\\', "bfnrt"[at])
			} else {
				out = fmt.Appendf(out, `\u%04x`, c)
			}
			continue
		case escaped:
			escaped = false
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			escaped = true
		}
		out = append(out, c)
	}
	return out
}

// WithCallChunks returns a chunk with parts of tool calls, and with the calls as far as these parts determine them.
func (m Message) WithCallChunks(parts ...ToolCallChunk) Message {
	m.ToolCallChunks = parts
	m.readCalls()
	return m
}

// readCalls reads tool calls from their parts.
func (m *Message) readCalls() {
	m.ToolCalls, m.InvalidToolCalls = nil, nil
	for _, c := range m.ToolCallChunks {
		args, ok := json.RawMessage(nil), true
		if c.Args != "" {
			args, ok = PartialJSON(c.Args)
			ok = ok && len(args) > 0 && args[0] == '{'
		}
		if !ok {
			m.InvalidToolCalls = append(m.InvalidToolCalls, InvalidToolCall{Name: c.Name, Args: c.Args, ID: c.ID})
			continue
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{Name: c.Name, Args: args, ID: c.ID})
	}
}

// Whole returns the message that a chunk, or the sum of all its chunks, stands for. A message that is no chunk stays what it is.
func (m Message) Whole() Message {
	if !m.IsChunk() {
		return m
	}
	m.Type = map[string]string{
		TypeAIChunk: TypeAI, TypeHumanChunk: TypeHuman, TypeSystemChunk: TypeSystem, TypeToolChunk: TypeTool,
		TypeFunctionChunk: TypeFunction, TypeChatChunk: TypeChat,
	}[m.Type]
	m.ToolCallChunks, m.Last = nil, false
	return m
}

// betterID prefers ids that providers gave to those of runs, and these to what else LangChain made up.
func betterID(ids ...string) string {
	best, out := -1, ""
	for _, id := range ids {
		if id == "" {
			continue
		}
		rank := 2
		if strings.HasPrefix(id, "lc_run-") {
			rank = 1
		} else if strings.HasPrefix(id, "lc_") {
			rank = 0
		}
		if rank > best {
			best, out = rank, id
		}
	}
	return out
}

func addUsage(a, b *Usage) *Usage {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &Usage{
		InputTokens: a.InputTokens + b.InputTokens, OutputTokens: a.OutputTokens + b.OutputTokens, TotalTokens: a.TotalTokens + b.TotalTokens,
		InputDetails: addCounts(a.InputDetails, b.InputDetails), OutputDetails: addCounts(a.OutputDetails, b.OutputDetails),
	}
}

func addCounts(a, b json.RawMessage) json.RawMessage {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	sum := jsonobj.Of(a)
	jsonobj.Of(b).Each(func(name string, value json.RawMessage) {
		have := sum.Get(name)
		if n, ok := addInts(have, value); ok {
			value = n
		} else if have != nil {
			return
		}
		sum.Set(name, value)
	})
	return sum.JSON()
}

func addContent(a, b Content) (Content, error) {
	switch {
	case a.Blocks == nil && b.Blocks == nil:
		return Text(a.Text + b.Text), nil
	case a.Blocks == nil:
		return Content{Blocks: append([]json.RawMessage{jsonobj.AppendText(nil, a.Text)}, b.Blocks...)}, nil
	case b.Blocks != nil:
		blocks, err := addLists(a.Blocks, b.Blocks)
		return Content{Blocks: blocks}, err
	case b.Text == "" || len(a.Blocks) == 0:
		return a, nil
	}
	blocks := append([]json.RawMessage(nil), a.Blocks...)
	if last := gjson.ParseBytes(blocks[len(blocks)-1]); last.Type == gjson.String {
		blocks[len(blocks)-1] = jsonobj.AppendText(nil, last.Str+b.Text)
	} else {
		blocks = append(blocks, jsonobj.AppendText(nil, b.Text))
	}
	return Content{Blocks: blocks}, nil
}

// addCalls adds parts of tool calls: those with the same index, whose ids do not differ, are of the same call.
func addCalls(a, b []ToolCallChunk) []ToolCallChunk {
	if len(b) == 0 {
		return a
	}
	out := append(make([]ToolCallChunk, 0, len(a)+len(b)), a...)
next:
	for _, c := range b {
		if c.Index == nil || len(a) == 0 {
			out = append(out, c)
			continue
		}
		for i := range out {
			o := &out[i]
			if o.Index == nil || *o.Index != *c.Index || o.ID != "" && c.ID != "" && o.ID != c.ID {
				continue
			}
			o.Name += c.Name
			o.Args += c.Args
			o.NoArgs = o.NoArgs && c.NoArgs
			if o.ID == "" {
				o.ID = c.ID
			}
			continue next
		}
		out = append(out, c)
	}
	return out
}

func addObjects(a, b json.RawMessage) (json.RawMessage, error) {
	if len(a) == 0 || len(b) == 0 {
		if len(a) == 0 {
			return b, nil
		}
		return a, nil
	}
	out := jsonobj.Of(a)
	var err error
	jsonobj.Of(b).Each(func(name string, value json.RawMessage) {
		if err != nil {
			return
		}
		var sum json.RawMessage
		if sum, err = addField(name, out.Get(name), value); err == nil {
			out.Set(name, sum)
		}
	})
	if err != nil {
		return nil, err
	}
	if out.Len() == 0 {
		return nil, nil
	}
	return out.JSON(), nil
}

var errTypes = errors.New("the field has a value of another type already")

// addField adds the values of a field of two objects, as LangChain's merge_dicts does.
func addField(name string, a, b json.RawMessage) (json.RawMessage, error) {
	if a == nil || string(a) == "null" {
		return b, nil
	}
	x, y := gjson.ParseBytes(a), gjson.ParseBytes(b)
	switch {
	case y.Type == gjson.Null:
		return a, nil
	case x.Type == gjson.String && y.Type == gjson.String:
		same := x.Str == y.Str && (name == "id" || name == "output_version" || name == "model_provider")
		if same || name == "index" && strings.HasPrefix(x.Str, "lc_") {
			return a, nil
		}
		return jsonobj.AppendText(nil, x.Str+y.Str), nil
	case x.IsObject() && y.IsObject():
		return addObjects(a, b)
	case x.IsArray() && y.IsArray():
		items, err := addLists(itemsOf(x), itemsOf(y))
		return array(items), err
	case string(a) == string(b):
		return a, nil
	}
	if name == "index" || name == "created" || name == "timestamp" {
		if _, ok := addInts(a, b); ok {
			return b, nil
		}
	}
	if sum, ok := addInts(a, b); ok {
		return sum, nil
	}
	return nil, fmt.Errorf("%s: %w", name, errTypes)
}

func addInts(a, b json.RawMessage) (json.RawMessage, bool) {
	x, ok := new(big.Int).SetString(string(a), 10)
	if !ok {
		return nil, false
	}
	y, ok := new(big.Int).SetString(string(b), 10)
	if !ok {
		return nil, false
	}
	return json.RawMessage(x.Add(x, y).String()), true
}

func itemsOf(v gjson.Result) []json.RawMessage {
	out := []json.RawMessage{}
	v.ForEach(func(_, item gjson.Result) bool {
		out = append(out, json.RawMessage(item.Raw))
		return true
	})
	return out
}

func array(items []json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, item := range items {
		b = append(comma(b, i), item...)
	}
	return append(b, ']')
}

// addLists appends the items of b to a; objects whose index an item of a has are merged with that.
func addLists(a, b []json.RawMessage) ([]json.RawMessage, error) {
	out := append(make([]json.RawMessage, 0, len(a)+len(b)), a...)
	var known spots
	for _, have := range a {
		known.add(spotOf(have))
	}
	more := map[int][]json.RawMessage{} // what is merged with the items of out
	for _, item := range b {
		p := spotOf(item)
		if i := known.find(p); i >= 0 {
			more[i] = append(more[i], item)
			continue
		}
		out = append(out, item)
		known.add(p)
	}
	for i, items := range more {
		sum, err := addItems(out[i], items)
		if err != nil {
			return nil, err
		}
		out[i] = sum
	}
	return out, nil
}

// addItems merges items with the one that has their index, and many of them with each other first: the time depends on their size, not on
// its square.
func addItems(have json.RawMessage, items []json.RawMessage) (json.RawMessage, error) {
	kind := gjson.GetBytes(have, "type").Str
	parts := make([]json.RawMessage, len(items))
	for i, item := range items {
		v := gjson.ParseBytes(item)
		if v.Get("type").Str == "non_standard" && v.Get("value").Exists() && kind != "" {
			parts[i] = object(nonStandard(v, kind, v.Get("index")))
		} else {
			parts[i] = object(withoutType(v))
		}
	}
	for len(parts) > 8 {
		sums := parts[:0]
		for i := 0; i < len(parts); i += 2 {
			if i+1 == len(parts) {
				sums = append(sums, parts[i])
				continue
			}
			sum, err := addObjects(parts[i], parts[i+1])
			if err != nil {
				return nil, err
			}
			sums = append(sums, sum)
		}
		parts = sums
	}
	for _, part := range parts {
		sum, err := addObjects(have, part)
		if err != nil {
			return nil, err
		}
		have = sum
	}
	return have, nil
}

// place says which items of lists are merged: those with the same index whose ids do not differ.
type place struct{ index, id string }

// spot is the place of an item.
type spot struct {
	place
	merges bool // else the item is never merged
	typed  bool
	wraps  bool // of type non_standard: a typed item gets its value, and not its id
}

func spotOf(item json.RawMessage) spot {
	v := gjson.ParseBytes(item)
	index := v.Get("index")
	if !v.IsObject() || !mergeable(index) {
		return spot{}
	}
	kind := v.Get("type").Str
	return spot{place: place{index.Raw, v.Get("id").String()}, merges: true, typed: kind != "", wraps: kind == "non_standard" && v.Get("value").Exists()}
}

// spots finds the first item that another is merged with. Few items are searched one by one.
type spots struct {
	all   []spot
	first map[string]int  // by index
	ids   map[place][]int // by index and id, "" too, in order
}

func (s *spots) add(p spot) {
	s.all = append(s.all, p)
	switch {
	case s.first != nil:
		s.note(len(s.all) - 1)
	case len(s.all) > 16:
		s.first, s.ids = map[string]int{}, map[place][]int{}
		for i := range s.all {
			s.note(i)
		}
	}
}

func (s *spots) note(i int) {
	p := s.all[i].place
	if _, known := s.first[p.index]; !known {
		s.first[p.index] = i
	}
	s.ids[p] = append(s.ids[p], i)
}

// find returns the item that one at p is merged with; -1: none.
func (s *spots) find(p spot) int {
	found := -1
	unnamed := place{index: p.index}
	switch {
	case !p.merges:
		return -1
	case s.first == nil:
		found = slices.IndexFunc(s.all, func(o spot) bool { return o.index == p.index && (o.id == "" || p.id == "" || o.id == p.id) })
	case p.id == "":
		if i, known := s.first[p.index]; known {
			found = i
		}
	default:
		for _, o := range []place{p.place, unnamed} {
			if at := s.ids[o]; len(at) > 0 && (found < 0 || at[0] < found) {
				found = at[0]
			}
		}
	}
	if found < 0 || s.all[found].id != "" || p.id == "" || p.wraps && s.all[found].typed {
		return found
	}
	s.all[found].id = p.id // as that of the sum
	if s.first != nil {
		s.ids[unnamed] = s.ids[unnamed][1:] // found is the first of them
		at, _ := slices.BinarySearch(s.ids[p.place], found)
		s.ids[p.place] = slices.Insert(s.ids[p.place], at, found)
	}
	return found
}

func withoutType(v gjson.Result) (fields []Field) {
	fields = make([]Field, 0, 4)
	jsonobj.Of(json.RawMessage(v.Raw)).Each(func(name string, value json.RawMessage) {
		if name != "type" {
			fields = append(fields, Field{name, value})
		}
	})
	return fields
}

func mergeable(index gjson.Result) bool {
	if index.Type == gjson.Number {
		return !strings.ContainsAny(index.Raw, ".eE")
	}
	return index.Type == gjson.String && strings.HasPrefix(index.Str, "lc_")
}

func nonStandard(v gjson.Result, haveType string, index gjson.Result) []Field {
	value := object(withoutType(v.Get("value")))
	if value == nil {
		value = json.RawMessage("{}")
	}
	if haveType != "non_standard" {
		return []Field{{"extras", value}}
	}
	return []Field{{"value", value}, {"index", json.RawMessage(index.Raw)}}
}

// maxPartial bounds how many bytes PartialJSON reads in all: it reads its text again for each byte that it has to cut off the end.
const maxPartial = 64 << 20

// PartialJSON completes JSON of which the end has not come yet, as LangChain's parse_partial_json, and returns it compact. ok is false when
// nothing can be made of it.
func PartialJSON(text string) (raw json.RawMessage, ok bool) {
	if strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 }) {
		text = string(escapeControls([]byte(text))) // LangChain reads with strict=False
	}
	if json.Valid([]byte(text)) {
		return rawOf(gjson.Parse(text)), true
	}
	var stack []byte
	inString, escaped := false, false
	b := make([]byte, 0, len(text)+8)
	for i := range len(text) {
		c := text[i]
		switch {
		case inString && c == '"' && !escaped:
			inString = false
		case inString && c == '\n' && !escaped:
			b = append(b, '\\')
			c = 'n'
		case inString && c == '\\':
			escaped = !escaped
		case inString:
			escaped = false
		case c == '"':
			inString, escaped = true, false
		case c == '{':
			stack = append(stack, '}')
		case c == '[':
			stack = append(stack, ']')
		case c == '}' || c == ']':
			if len(stack) == 0 || stack[len(stack)-1] != c {
				return json.RawMessage("null"), true
			}
			stack = stack[:len(stack)-1]
		}
		b = append(b, c)
	}
	if inString {
		if escaped {
			b = b[:len(b)-1]
		}
		b = append(b, '"')
	}
	tail := make([]byte, 0, len(stack))
	for i := len(stack) - 1; i >= 0; i-- {
		tail = append(tail, stack[i])
	}
	for left := maxPartial; len(b) > 0 && left > 0; left -= len(b) {
		whole := append(b[:len(b):len(b)], tail...)
		if json.Valid(whole) {
			return rawOf(gjson.ParseBytes(whole)), true
		}
		// What ends within a word or number is cut back to where it began; cutting inside of a string never helps.
		b = b[:len(b)-1]
	}
	return nil, false
}
