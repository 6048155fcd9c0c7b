package protocol

import (
	"encoding/json"
	"slices"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// plainBlocks are the types of content blocks that stay as they are.
var plainBlocks = []string{
	"text", "reasoning", "image", "audio", "video", "file", "tool_call", toolChunk, "invalid_tool_call", "server_tool_call", serverToolChunk, "non_standard",
}

// appendContent appends the content of a message, with its blocks as the protocol has them: those of OpenAI for images and audio become LangChain's, and types
// that it does not know become non_standard. A block without a type is kept.
func appendContent(b []byte, content json.RawMessage) []byte {
	items, ok := jsonscan.Elements(content)
	if !ok {
		return append(b, content...)
	}
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBlock(b, item)
	}
	return append(b, ']')
}

func appendBlock(b []byte, item json.RawMessage) []byte {
	switch {
	case len(item) > 0 && item[0] == '"':
		return append(append(append(b, `{"type":"text","text":`...), item...), '}')
	case len(item) == 0 || item[0] != '{':
		return append(b, item...)
	}
	kind := jsonscan.Text(item, "type")
	switch kind {
	case "image_url", "input_audio":
		if o := mediaBlock(kind, item); o != nil {
			return append(b, o.JSON()...)
		}
		return append(b, item...)
	case "":
		return append(b, item...)
	}
	if slices.Contains(plainBlocks, kind) {
		return append(b, item...)
	}
	return append(append(append(b, `{"type":"non_standard","value":`...), item...), '}')
}

// mediaBlock returns a block with OpenAI's form of an image or of audio as LangChain's; nil when it has neither an address nor data.
func mediaBlock(kind string, item json.RawMessage) *jsonobj.Object {
	o := &jsonobj.Object{}
	media := jsonscan.Raw(item, kind)
	if kind == "input_audio" {
		data := jsonscan.Raw(media, "data")
		if len(data) == 0 || data[0] != '"' {
			return nil
		}
		o.SetText("type", "audio")
		o.Set("data", data)
		return o
	}
	if len(media) > 0 && media[0] == '{' {
		media = jsonscan.Raw(media, "url")
	}
	if len(media) == 0 || media[0] != '"' {
		return nil
	}
	o.SetText("type", "image")
	o.Set("url", media)
	return o
}
