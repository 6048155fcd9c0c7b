package providertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// sentBlock is a content block, and what a provider gets of it: part of the request, or "" for nothing.
type sentBlock struct{ name, block, openai, anthropic, ollama string }

// sentBlocks are blocks in all forms that clients write.
var sentBlocks = []sentBlock{
	{"pdf", `{"type":"file","base64":"JVBERg==","mime_type":"application/pdf","filename":"report.pdf"}`, `"file_data":"data:application/pdf;base64,JVBERg==","filename":"report.pdf"`, `"title":"report.pdf"`, ""},
	{"pdf-native-openai", `{"type":"file","file":{"filename":"report.pdf","file_data":"data:application/pdf;base64,JVBERg=="}}`, `"filename":"report.pdf"`, `"title":"report.pdf"`, ""},
	{"pdf-extras", `{"type":"file","base64":"JVBERg==","extras":{"filename":"report.pdf"}}`, `"filename":"report.pdf"`, `"title":"report.pdf"`, ""},
	{"pdf-metadata", `{"type":"file","source_type":"base64","data":"JVBERg==","mime_type":"application/pdf","metadata":{"filename":"report.pdf"}}`, `"filename":"report.pdf"`, `"title":"report.pdf"`, ""},
	{"pdf-native-anthropic", `{"type":"document","title":"report.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}}`, `"file_data":"data:application/pdf;base64,JVBERg==","filename":"report.pdf"`, `"title":"report.pdf"`, ""},
	{"document-of-text", `{"type":"document","title":"notes","source":{"type":"text","media_type":"text/plain","data":"seven is prime"}}`, "seven is prime", "seven is prime", "seven is prime"},
	{"document-of-blocks", `{"type":"document","source":{"type":"content","content":[{"type":"text","text":"seven is prime"}]}}`, "seven is prime", "seven is prime", "seven is prime"},
	{"document-by-url", `{"type":"document","source":{"type":"url","url":"https://x.test/report.pdf"}}`, "", "https://x.test/report.pdf", ""},
	{"search-result", `{"type":"search_result","source":"https://x.test","title":"Primes","content":[{"type":"text","text":"seven is prime"}]}`, "seven is prime", "seven is prime", "seven is prime"},
	{"text-plain", `{"type":"text-plain","text":"seven is prime"}`, "seven is prime", "seven is prime", "seven is prime"},
	{"file-by-url", `{"type":"file","url":"https://x.test/report.pdf","filename":"report.pdf"}`, "", "https://x.test/report.pdf", ""},
	{"file-of-openai", `{"type":"file","file":{"file_id":"file-abc"}}`, `"file_id":"file-abc"`, "", ""},
	{"file-of-openai-by-id", `{"type":"file","file_id":"file-abc"}`, `"file_id":"file-abc"`, "", ""},
	{"file-of-anthropic", `{"type":"document","source":{"type":"file","file_id":"file_011"}}`, "", `"file_id":"file_011"`, ""},
	{"file-of-anthropic-by-id", `{"type":"file","file_id":"file_011"}`, "", `"file_id":"file_011"`, ""},
	{"file-v0-by-id", `{"type":"file","source_type":"id","id":"file-abc"}`, `"file_id":"file-abc"`, "", ""},
	{"audio", `{"type":"audio","base64":"AQID","mime_type":"audio/mpeg"}`, `"input_audio":{"data":"AQID","format":"mp3"}`, "", ""},
	{"audio-native", `{"type":"input_audio","input_audio":{"data":"AQID","format":"wav"}}`, `"input_audio":{"data":"AQID","format":"wav"}`, "", ""},
	{"audio-by-url", `{"type":"audio","url":"https://x.test/a.wav"}`, "", "", ""},
	{"image-svg", `{"type":"image","base64":"AQID","mime_type":"image/svg+xml"}`, `data:image/svg+xml;base64,AQID`, "", `data:image/svg+xml;base64,AQID`},
	{"image-jpg", `{"type":"image","base64":"AQID","mime_type":"image/jpg"}`, `data:image/jpg;base64,AQID`, `"media_type":"image/jpeg"`, `data:image/jpg;base64,AQID`},
	{"image-by-id", `{"type":"image","file_id":"file_011"}`, "", `"file_id":"file_011"`, ""},
	{"image-bad-base64", `{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}`, "", "", ""},
	{"image-elsewhere", `{"type":"image","base64":"?","mime_type":"image/png"}`, "", "", ""},
	{"document-bad-base64", `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"?"}}`, "", "", ""},
	{"document-empty", `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":""}}`, "", "", ""},
	{"upload", `{"type":"container_upload","file_id":"file_011"}`, "", `"container_upload"`, ""},
	{"unknown", `{"type":"hologram","hologram":{"data":"AQID"}}`, "", "", ""},
}

// contentCases: each block is translated, or it is an error when it was just sent. In an older message it is a text then. No thread is
// blocked: the run after the error works.
func contentCases() []*Case {
	var all []*Case
	for _, provider := range []string{"openai", "anthropic", "ollama"} {
		hello := Answer("Hello")
		if provider == "anthropic" {
			hello = Claude("end_turn", Text(0, "Hello"))
		}
		for _, b := range sentBlocks {
			sent := map[string]string{"openai": b.openai, "anthropic": b.anthropic, "ollama": b.ollama}[provider]
			asked := `{"type":"human","id":"m1","content":[{"type":"text","text":"look"},` + b.block + `]}`
			base := Case{Line: 13, Provider: provider, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
				for _, request := range r.Sent {
					raw := request.Get("messages").Raw
					if err := first(want("the block in "+raw, sent == "" || strings.Contains(raw, sent), true), want("the text in its place in "+raw, strings.Contains(raw, "not shown to this model]"), sent == "")); err != nil {
						return err
					}
				}
				return nil
			}}
			if provider == "ollama" {
				base.Rules = []Rule{openAIRules, textAndImages}
			}
			fresh, old, twice := base, base, base
			fresh.Name, fresh.Turns, fresh.Want.Calls = fmt.Sprintf("sends-%s-%s", b.name, provider), []Turn{{Input: `{"messages":[` + asked + `]}`}, {Says: "again"}}, 2
			if sent == "" {
				fresh.Turns[0].Error, fresh.Want.Calls = "message m1: a content block of type", 1
			}
			old.Name, old.Turns = fmt.Sprintf("has-%s-%s", b.name, provider), []Turn{{Input: `{"messages":[` + asked + `,{"type":"ai","content":"I see"},{"type":"human","content":"and now?"}]}`}}
			twice.Name, twice.Turns = fmt.Sprintf("result-%s-%s", b.name, provider), []Turn{{Input: `{"messages":[` + asked + `,{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}]},` +
				`{"type":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"see"},` + b.block + `]}]}`}}
			twice.Check, twice.Agent = nil, calculator
			all = append(all, &fresh, &old, &twice)
		}
	}
	// Some models read text alone, which only their refusal says.
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}`
	textAlone := func(_ *http.Request, body gjson.Result) string {
		if strings.Contains(body.Get("messages").Raw, "AQID") {
			return "this model does not support image input"
		}
		return ""
	}
	for provider, hello := range map[string]Reply{"openai": Answer("Hello"), "anthropic": Claude("end_turn", Text(0, "Hello"))} {
		model := object{}
		if provider == "openai" {
			model["images"] = true // those of tools follow in a message
		}
		all = append(all, &Case{
			Line: 13, Name: "refused-image-" + provider, Provider: provider, Rules: []Rule{textAlone}, Replies: []Reply{hello}, Want: Want{Answer: "Hello", Calls: 5},
			Turns: []Turn{{Input: `{"messages":[{"type":"human","content":[{"type":"text","text":"look"},` + image + `]}]}`, Error: "does not support image input"}, {Says: "again"}, {Says: "and again"}},
		}, &Case{
			Line: 13, Name: "refused-image-of-a-tool-" + provider, Provider: provider, Model: model, Agent: calculator, Rules: []Rule{textAlone}, Replies: []Reply{hello}, Want: Want{Answer: "Hello", Calls: 2},
			Turns: []Turn{{Input: `{"messages":[{"type":"human","content":"x"},{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}]},` +
				`{"type":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"see"},` + image + `]}]}`}},
		})
	}
	return append(all, &Case{
		Line: 13, Name: "lines-of-their-own", Replies: []Reply{Answer("Hello")}, Want: Want{Answer: "Hello"}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":[` +
			`{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"hologram"},{"type":"document","source":{"type":"text","data":"c"}},{"type":"text","text":"d"}]},{"type":"human","content":"x"}]}`}},
		Check: func(r *Result) error {
			return want("the text", r.Sent[0].Get("messages.0.content").Str, "ab\n[content, not shown to this model]\nc\nd")
		},
	})
}
