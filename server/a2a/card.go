package a2a

import (
	"strconv"

	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/internal/jsonobj"
)

// HistoryScope is the header by which clients choose what the history of a task has: the whole context, or with the value `task` the task alone.
const HistoryScope = "LangGraph-A2A-History-Scope"

const extensions = `[{"uri":"https://langchain.com/a2a/extensions/history-scope/v1","description":"Choose task-only or full-context response history","required":false,` +
	`"params":{"header":"` + HistoryScope + `","values":["context","task"],"default":"context","methods":["SendMessage","GetTask","ListTasks"]}}]`

const modes = `["application/json","text/plain"]`

// Speaks reports whether a graph takes texts, given its schemas, and else the names of its input. A graph of unknown schemas takes them.
func Speaks(schemas []byte) (ok bool, names []string) {
	properties := gjson.GetBytes(schemas, "input_schema.properties")
	if !properties.IsObject() || properties.Get("messages").Exists() {
		return true, nil
	}
	properties.ForEach(func(name, _ gjson.Result) bool {
		names = append(names, name.String())
		return true
	})
	return false, names
}

// AppendCard appends the card of an assistant that is served at a URL. push: it sends push notifications. schemas are those of
// its graph; nil when they are not known.
func AppendCard(dst []byte, a *assistant.Assistant, url, version string, push bool, schemas []byte) []byte {
	name := a.Name
	if name == "" {
		name = string(a.ID)
	}
	description := name + " assistant"
	if a.Description != nil && *a.Description != "" {
		description = *a.Description
	}
	dst = jsonobj.AppendText(append(dst, `{"name":`...), name)
	dst = jsonobj.AppendText(append(dst, `,"description":`...), description)
	dst = jsonobj.AppendText(append(dst, `,"url":`...), url)
	dst = append(dst, `,"preferredTransport":"JSONRPC","protocolVersion":"0.3.0","supportedInterfaces":[`...)
	for i, v := range []string{"1.0", "0.3"} {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonobj.AppendText(append(dst, `{"url":`...), url)
		dst = append(dst, `,"protocolBinding":"JSONRPC","protocolVersion":"`+v+`"}`...)
	}
	dst = append(dst, `],"capabilities":{"streaming":true,"pushNotifications":`+strconv.FormatBool(push)+`,"stateTransitionHistory":false,"extensions":`+extensions+`}`...)
	dst = append(dst, `,"defaultInputModes":`+modes+`,"defaultOutputModes":`+modes+`,"skills":[`...)
	dst = jsonobj.AppendText(append(dst, `{"id":`...), string(a.ID)+"-main")
	dst = jsonobj.AppendText(append(dst, `,"name":`...), name+" Capabilities")
	dst = jsonobj.AppendText(append(dst, `,"description":`...), description)
	dst = append(dst, `,"tags":["assistant","langgraph"],"examples":[],"inputModes":`+modes+`,"outputModes":`+modes+`,"metadata":{"inputSchema":{"required":[`...)
	input := gjson.GetBytes(schemas, "input_schema")
	dst = appendNames(dst, input.Get("required").Array())
	dst = append(dst, `],"properties":[`...)
	dst = appendNames(dst, input.Get("properties|@keys").Array())
	dst = append(dst, `],"supportsA2A":`...)
	if input.Get("properties.messages").Exists() {
		dst = append(dst, "true"...)
	} else {
		dst = append(dst, "false"...)
	}
	return append(jsonobj.AppendText(append(dst, `}}}],"version":`...), version), '}')
}

func appendNames(dst []byte, names []gjson.Result) []byte {
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonobj.AppendText(dst, name.String())
	}
	return dst
}

// CardError is the body of a card that there is not.
func CardError(text string) []byte {
	return append(jsonobj.AppendText([]byte(`{"error":{"code":-32602,"message":`), text), "}}"...)
}
