package jsonscan

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tidwall/gjson"
)

// BenchmarkScan goes through a state of 400 messages.
func BenchmarkScan(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"values":{"messages":[`)
	for i := range 400 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"content":"w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19 w20 w21 w22","additional_kwargs":{},`+
			`"response_metadata":{"finish_reason":"stop","model_name":"fake"},"type":"ai","name":"agent","id":"lc_run--%d","tool_calls":[],"invalid_tool_calls":[],`+
			`"usage_metadata":{"input_tokens":1,"output_tokens":23,"total_tokens":24}}`, i)
	}
	body.WriteString(`]},"next":[],"tasks":[]}`)
	text := body.Bytes()
	for name, fn := range map[string]func(){
		"Skip":     func() { Skip(text, 0) },
		"Valid":    func() { Valid(text) },
		"gjson":    func() { gjson.ValidBytes(text) },
		"Elements": func() { Elements(Raw(Raw(text, "values"), "messages")) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				fn()
			}
		})
	}
}
