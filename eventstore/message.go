package eventstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/eventstore/judge"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
	"understudy/internal/jsonscan"
)

// lcSummarization is what LangChain's SummarizationMiddleware writes in additional_kwargs.lc_source.
const lcSummarization = "summarization"

// removeAll is the id of a remove message that stands for all messages.
const removeAll = "__remove_all__"

// typeOf returns the event type for a message type. Stored chunks count as the message they are part of.
func typeOf(message string) string {
	switch message {
	case "human", "user", "HumanMessageChunk":
		return TypeHuman
	case "ai", "assistant", "AIMessageChunk":
		return TypeAI
	case "tool", "ToolMessageChunk":
		return TypeTool
	case "system", "SystemMessageChunk":
		return TypeSystem
	default:
		return TypeMessage
	}
}

// TypeOf returns the event type for a message type.
func TypeOf(message string) string { return typeOf(message) }

// CanSummarize reports whether a message of this type can be a summary without declaring itself one.
func CanSummarize(message string) bool {
	switch typeOf(message) {
	case TypeHuman, TypeAI, TypeSystem:
		return true
	default:
		return false
	}
}

// ShownMessage reads a message as clients see it: an object that has `type` and `content`.
func ShownMessage(raw []byte) (m jsonplus.Message, ok bool) {
	content, _, has := jsonscan.Member(raw, "content")
	if m.Type = jsonscan.Text(raw, "type"); m.Type == "" || !has {
		return m, false
	}
	if raw[content] == '"' {
		m.Content = jsonscan.Text(raw, "content")
	}
	m.ID = jsonscan.Text(raw, "id")
	m.HasID = m.ID != ""
	m.ToolCallID = jsonscan.Text(raw, "tool_call_id")
	m.LCSource = jsonscan.Text(jsonscan.Raw(raw, "additional_kwargs"), "lc_source")
	return m, true
}

// messageJSON returns a stored message as JSON; ok is false when it is corrupt. A graph may save anything, so a message that cannot be
// read is not recorded, without an error.
func messageJSON(raw []byte) (text []byte, ok bool) {
	text, err := jsonplus.AppendJSONBelow(nil, 2, "msgpack", raw) // an item of a list in a channel
	return text, err == nil && gjson.ValidBytes(text)
}

// ContentDigest returns the digest of a message's content as clients see it, without its id. It is zero for a value that
// is not an object.
func ContentDigest(message []byte) (d judge.Digest) {
	digest, err := anonymousDigest(message)
	if err != nil {
		return d
	}
	if b, err := hex.DecodeString(digest); err == nil {
		copy(d[:], b)
	}
	return d
}

// Identify sets the id of a message that has none to the one that recording assigns; known reports whether the lineage has had an id.
func Identify(message []byte, known func(mid string) bool) (mid string, identified []byte, err error) {
	digest, err := anonymousDigest(message)
	if err != nil {
		return "", nil, fmt.Errorf("message without id: %w", err)
	}
	mid = anonymousID(digest, known)
	return mid, withID(message, mid), nil
}

// anonymousDigest is the digest of a message without its id, over JSON with sorted keys: independent of how the message
// was encoded.
func anonymousDigest(message []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(message))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return "", err
	}
	delete(fields, "id")
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.TrimRight(b.Bytes(), "\n"))
	return hex.EncodeToString(sum[:]), nil
}

// anonymousID returns the id for a message that has none: made of its content, and by how many equal ones the lineage had before.
func anonymousID(digest string, known func(string) bool) string {
	at := func(n int) string {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(digest+":"+strconv.Itoa(n))).String()
	}
	// Equal messages are numbered without gaps, so a binary search finds the first free number.
	low, high := 0, 1
	for known(at(high - 1)) {
		low, high = high, high*2
	}
	for low < high-1 {
		if mid := (low + high) / 2; known(at(mid - 1)) {
			low = mid
		} else {
			high = mid
		}
	}
	return at(low)
}

// withID sets the id of a message.
func withID(message []byte, mid string) []byte {
	o := jsonobj.Of(message)
	o.SetText("id", mid)
	return o.JSON()
}

// Text returns the text of a message: its content, or the text of its content blocks.
func Text(message []byte) string { return textOf(message) }

// textOf returns the text of a message: its content, or the text of its content blocks.
func textOf(message []byte) string {
	content := gjson.GetBytes(message, "content")
	if !content.IsArray() {
		return content.String()
	}
	var texts []string
	content.ForEach(func(_, block gjson.Result) bool {
		if block.Type == gjson.String {
			texts = append(texts, block.String())
		} else if text := block.Get("text"); text.Type == gjson.String {
			texts = append(texts, text.String())
		}
		return true
	})
	return strings.Join(texts, "\n")
}

// markerID returns the id of the marker, derived from that of the summary message or of the last condensed message.
func markerID(summary, lastCondensed string) string {
	if summary == "" {
		summary = uuid.NewSHA1(uuid.NameSpaceOID, []byte(lastCondensed)).String()
	}
	return "summary-marker-" + summary
}

// named collects the ids of remove messages anywhere in JSON from a client: as messages, as the constructor form of LangChain's
// serialisation, alone or in lists.
func named(into map[string]bool, v gjson.Result, depth int) {
	if depth > 32 || !v.IsObject() && !v.IsArray() {
		return
	}
	if v.IsObject() {
		kind := v.Get("type").String()
		if kind == "remove" || v.Get("role").String() == "remove" {
			if mid := v.Get("id"); mid.Type == gjson.String {
				into[mid.String()] = true
			}
			return
		}
		if kind == "constructor" {
			if class := v.Get("id").Array(); len(class) > 0 && class[len(class)-1].String() == "RemoveMessage" {
				into[v.Get("kwargs.id").String()] = true
			}
			return
		}
	}
	v.ForEach(func(_, e gjson.Result) bool {
		named(into, e, depth+1)
		return true
	})
}
