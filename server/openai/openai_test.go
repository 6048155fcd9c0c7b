package openai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/cputest"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/answer"
	"understudy/server/openai"
)

const (
	thread    = "00000000-0000-4000-8000-000000000001"
	assistant = id.Assistant("00000000-0000-4000-8000-000000000003")
)

var someRun = &run.Run{ID: "00000000-0000-7000-8000-000000000002", Thread: thread, CreatedAt: time.Unix(1000, 0)}

// chat makes a turn of a body, in which ' stands for ".
func chat(t *testing.T, body, header string) *openai.Turn {
	t.Helper()
	turn, err := openai.ReadChat([]byte(strings.ReplaceAll(body, "'", `"`)), header)
	require.NoError(t, err, body)
	return turn
}

// input is the input of the run of a turn: "type id content" of each message.
func input(t *testing.T, turn *openai.Turn, m openai.Memory) (out []string) {
	t.Helper()
	body, err := turn.Body(assistant, m)
	require.NoError(t, err)
	for _, one := range gjson.GetBytes(body, "input.messages").Array() {
		out = append(out, strings.Join(strings.Fields(one.Get("type").Str+" "+one.Get("id").Str+" "+one.Get("content").String()), " "))
	}
	return out
}

func TestMessagesOfChats(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ message, want string }{
		{`{'role':'user','content':'hi','name':'bob'}`, `{'type':'human','content':'hi','name':'bob'}`},
		{`{'role':'developer','content':'be short'}`, `{'type':'system','content':'be short'}`},
		{`{'role':'tool','content':'4','tool_call_id':'c'}`, `{'type':'tool','content':'4','tool_call_id':'c'}`},
		{
			`{'role':'assistant','content':null,'tool_calls':[{'id':'c','type':'function','function':{'name':'f','arguments':'{\'a\':1}'}},{'id':'d','function':{'name':'g','arguments':'{'}}]}`,
			`{'type':'ai','content':'','tool_calls':[{'id':'c','name':'f','type':'tool_call','args':{'a':1}}],'invalid_tool_calls':[{'id':'d','name':'g','type':'invalid_tool_call','error':null,'args':'{'}]}`,
		},
		{
			`{'role':'user','content':[{'type':'text','text':'look'},{'type':'image_url','image_url':{'url':'data:x','detail':'low'}},{'type':'input_audio','input_audio':{'data':'x','format':'wav'}},{'type':'file','file':{'file_data':'data:x','filename':'a.pdf'}}]}`,
			`{'type':'human','content':[{'type':'text','text':'look'},{'type':'image_url','image_url':{'url':'data:x','detail':'low'}},{'type':'input_audio','input_audio':{'data':'x','format':'wav'}},{'type':'file','file':{'file_data':'data:x','filename':'a.pdf'}}]}`,
		},
	} {
		body := strings.ReplaceAll(strings.ReplaceAll(`{'model':'m','messages':[`+tt.message+`]}`, `\'`, `\u0022`), "'", `"`)
		turn, err := openai.ReadChat([]byte(body), "")
		require.NoError(t, err)
		got, err := turn.Body(assistant, openai.Memory{})
		require.NoError(t, err)
		one := gjson.GetBytes(got, "input.messages.0").Raw
		if strings.Contains(tt.message, "assistant") { // a last message of the assistant has an id, by which it is not the answer
			require.NotEmpty(t, gjson.Get(one, "id").Str)
			one = strings.Replace(one, `,"id":`+gjson.Get(one, "id").Raw, "", 1)
		}
		require.JSONEq(t, strings.ReplaceAll(tt.want, "'", `"`), one)
	}
}

func TestBadChats(t *testing.T) {
	t.Parallel()
	message := `'messages':[{'role':'user','content':'hi'}]`
	for body, param := range map[string]string{
		`[]`:                                         "",
		`{` + message + `}`:                          "model",
		`{'model':1,` + message + `}`:                "model",
		`{'model':'m'}`:                              "messages",
		`{'model':'m','messages':[]}`:                "messages",
		`{'model':'m','messages':'hi'}`:              "messages",
		`{'model':'m','messages':[1]}`:               "messages[0]",
		`{'model':'m','messages':[{'role':'user'}]}`: "messages[0].content",
		`{'model':'m','messages':[{'role':'user','content':[{'type':'text'}]}]}`:                                                "messages[0].content[0].text",
		`{'model':'m','messages':[{'role':'user','content':[{'type':'video'}]}]}`:                                               "messages[0].content[0].type",
		`{'model':'m','messages':[{'role':'user','content':[{'type':'file','file':{'file_id':'f'}}]}]}`:                         "messages[0].content[0].file",
		`{'model':'m','messages':[{'role':'user','content':[{'type':'image_url','image_url':{}}]}]}`:                            "messages[0].content[0].image_url.url",
		`{'model':'m','messages':[{'role':'robot','content':'hi'}]}`:                                                            "messages[0].role",
		`{'model':'m','messages':[{'role':'tool','content':'hi'}]}`:                                                             "messages[0].tool_call_id",
		`{'model':'m','stream':'yes',` + message + `}`:                                                                          "stream",
		`{'model':'m','stream_options':1,` + message + `}`:                                                                      "stream_options",
		`{'model':'m','user':1,` + message + `}`:                                                                                "user",
		`{'model':'m','metadata':[],` + message + `}`:                                                                           "metadata",
		`{'model':'m','metadata':{'thread_id':'nope'},` + message + `}`:                                                         "metadata.thread_id",
		`{'model':'m','n':2,` + message + `}`:                                                                                   "n",
		`{'model':'m','logprobs':true,` + message + `}`:                                                                         "logprobs",
		`{'model':'m','modalities':['audio'],` + message + `}`:                                                                  "modalities",
		`{'model':'m','response_format':{'type':'json_object'},` + message + `}`:                                                "response_format",
		`{'model':'m','tools':[{'type':'function'}],'tool_choice':'required',` + message + `}`:                                  "tool_choice",
		`{'model':'m','tools':[{'type':'function'}],'tool_choice':{'type':'function','function':{'name':'f'}},` + message + `}`: "tool_choice",
		`{'model':'m','function_call':{'name':'f'},` + message + `}`:                                                            "function_call",
	} {
		_, err := openai.ReadChat([]byte(strings.ReplaceAll(body, "'", `"`)), "")
		var e *openai.Error
		require.ErrorAs(t, err, &e, body)
		require.Equal(t, param, e.Param, body)
		require.True(t, fault.Is(err, fault.Invalid))
	}
	_, err := openai.ReadChat([]byte(`{"model":"m","metadata":{"thread_id":"`+thread+`"},"messages":[{"role":"user","content":"hi"}]}`), "00000000-0000-4000-8000-000000000009")
	require.ErrorContains(t, err, "different threads")
	// What a graph decides by itself is no error, nor are tools that a client only offers.
	chat(t, `{'model':'m','n':1,'temperature':0.5,'max_tokens':5,'stop':['x'],'seed':1,'tools':[{'type':'function'}],'tool_choice':'auto','response_format':{'type':'text'},`+message+`}`, "")
}

// A thread has what came before; it is sent what is new, and what the system says.
func TestThreadsGetNewMessages(t *testing.T) {
	t.Parallel()
	body := `{'model':'m','messages':[{'role':'system','content':'s'},{'role':'user','content':'a'},{'role':'assistant','content':'b'},{'role':'user','content':'c'},{'role':'user','content':'d'}]}`
	all := []string{"system s", "human a", "ai b", "human c", "human d"}
	require.Equal(t, all, input(t, chat(t, body, ""), openai.Memory{}))
	all[0] = "system openai-system-0 s"
	require.Equal(t, all, input(t, chat(t, body, thread), openai.Memory{}), "a new thread has seen nothing")
	require.Equal(t, []string{"system openai-system-0 s", "human c", "human d"}, input(t, chat(t, body, thread), openai.Memory{Exists: true}))
	named := strings.Replace(body, "{", "{'metadata':{'thread_id':'"+thread+"','k':'v'},'user':'bob',", 1)
	turn := chat(t, named, "")
	require.Equal(t, id.Thread(thread), turn.Thread)
	got, err := turn.Body(assistant, openai.Memory{Exists: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"k":"v","user":"bob"}`, gjson.GetBytes(got, "metadata").Raw)
	require.Equal(t, "bob", gjson.GetBytes(got, "config.configurable.user_id").Str)

	_, err = chat(t, `{'model':'m','messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}`, thread).Body(assistant, openai.Memory{Exists: true})
	require.ErrorContains(t, err, "has seen all messages")
}

func TestAnswersToQuestions(t *testing.T) {
	t.Parallel()
	calls := `{'action_requests':[{'name':'f','args':{}},{'name':'g','args':{}}],'review_configs':[{'allowed_decisions':['approve','reject']}]}`
	for _, tt := range []struct{ interrupts, text, resume string }{
		{`{'t':[{'id':'i','value':'ok?'}]}`, `sure`, `'sure'`},
		{`{'t':[{'value':'ok?'}]}`, `5`, `'5'`},
		{`{'t':[{'id':'i','value':'ok?'}]}`, ` {\'a\': 1} `, `{'a':1}`},
		{`{'t':[{'id':'i','value':` + calls + `}]}`, `Approve.`, `{'decisions':[{'type':'approve'},{'type':'approve'}]}`},
		{`{'t':[{'id':'i','value':` + calls + `}]}`, `no`, `{'decisions':[{'type':'reject','message':'no'},{'type':'reject','message':'no'}]}`},
		{`{'t':[{'id':'i','value':` + strings.Replace(calls, "'reject'", "'respond'", 1) + `}]}`, `no`, `{'decisions':[{'type':'respond','message':'no'},{'type':'respond','message':'no'}]}`},
		{`{'t':[{'id':'i','value':` + calls + `}]}`, `{\'decisions\':[]}`, `{'decisions':[]}`},
		{`{'t':[{'id':'z','value':'z?'}],'u':[{'id':'b','value':'b?'}]}`, `b`, `{'b':'b'}`},
	} {
		body := strings.ReplaceAll(`{'model':'m','messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'},{'role':'user','content':'`+strings.ReplaceAll(tt.text, `\'`, `\u0022`)+`'}]}`, "'", `"`)
		turn, err := openai.ReadChat([]byte(body), thread)
		require.NoError(t, err)
		m := openai.Memory{Exists: true, Interrupts: json.RawMessage(strings.ReplaceAll(tt.interrupts, "'", `"`))}
		require.True(t, m.Waits())
		got, err := turn.Body(assistant, m)
		require.NoError(t, err)
		require.JSONEq(t, strings.ReplaceAll(tt.resume, "'", `"`), gjson.GetBytes(got, "command.resume").Raw)
		require.False(t, gjson.GetBytes(got, "input").Exists())
	}
	m := openai.Memory{Exists: true, Interrupts: json.RawMessage(`{"t":[{"id":"i","value":"ok?"}]}`)}
	_, err := chat(t, `{'model':'m','messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}`, thread).Body(assistant, m)
	require.ErrorContains(t, err, "waits for an answer")
}

// Arguments and answers are JSON within a text, where nothing has checked how deep it goes.
func TestDeepTexts(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	turn := chat(t, `{'model':'m','messages':[{'role':'user','content':'`+deep+`'}]}`, thread)
	got, err := turn.Body(assistant, openai.Memory{Exists: true, Interrupts: json.RawMessage(`{"t":[{"id":"i","value":"ok?"}]}`)})
	require.NoError(t, err)
	require.Equal(t, deep, gjson.GetBytes(got, "command.resume").Str, "as a text")
	turn = chat(t, `{'model':'m','messages':[{'role':'assistant','content':'','tool_calls':[{'id':'c','function':{'name':'f','arguments':'{`+`\u0022a\u0022:`+deep+`}'}}]}]}`, "")
	got, err = turn.Body(assistant, openai.Memory{})
	require.NoError(t, err)
	require.Equal(t, "f", gjson.GetBytes(got, "input.messages.0.invalid_tool_calls.0.name").Str)
}

// records makes records of "event data", in which ' stands for ".
func records(lines ...string) (out []*bridge.Record) {
	for _, line := range lines {
		event, data, _ := strings.Cut(line, " ")
		out = append(out, &bridge.Record{Event: event, Data: []byte(strings.ReplaceAll(data, "'", `"`))})
	}
	return out
}

// token is a chunk of a message that a node streams.
func token(mid, node, text string, more ...string) string {
	return fmt.Sprintf(`messages [{'type':'AIMessageChunk','id':'%s','content':'%s'},{'langgraph_node':'%s','langgraph_checkpoint_ns':'%s:1'%s}]`, mid, text, node, node, strings.Join(more, ""))
}

// last is the last chunk of a message.
func last(mid, node string) string {
	return fmt.Sprintf(`messages [{'type':'AIMessageChunk','id':'%s','content':'','chunk_position':'last'},{'langgraph_node':'%s'}]`, mid, node)
}

func wrote(node string, messages ...string) string {
	return `updates {'` + node + `':{'messages':[` + strings.Join(messages, ",") + `]}}`
}

func ai(mid, text string) string {
	return fmt.Sprintf(`{'type':'ai','id':'%s','content':'%s','usage_metadata':{'input_tokens':2,'output_tokens':1,'total_tokens':3}}`, mid, text)
}

// both returns the answer of records as a whole, and what its stream shows.
func both(t *testing.T, lines ...string) (whole, streamed string) {
	t.Helper()
	turn := chat(t, `{'model':'m','messages':[{'role':'user','content':'hi'}]}`, thread)
	a := openai.NewAnswer(turn, nil)
	for _, r := range records(lines...) {
		require.Empty(t, a.Add(r))
	}
	a.End()
	turn = chat(t, `{'model':'m','stream':true,'messages':[{'role':'user','content':'hi'}]}`, thread)
	events := openai.NewChat(turn, someRun, openai.NewAnswer(turn, nil))
	var sent []byte
	for _, r := range records(lines...) {
		sent = events.Append(sent, r)
	}
	for data := range strings.SplitSeq(string(events.End(sent)), "\n\n") {
		data, ok := strings.CutPrefix(data, "data: ")
		require.True(t, ok || data == "")
		streamed += gjson.Get(data, "choices.0.delta.content").Str
	}
	return a.Text(), streamed
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		records         []string
		whole, streamed string
	}{
		"tokens":                         {[]string{token("1", "model", "Hel"), token("1", "model", "lo"), last("1", "model"), wrote("model", ai("1", "Hello"))}, "Hello", "Hello"},
		"a message that is not streamed": {[]string{wrote("answer", ai("1", "Hello"))}, "Hello", "Hello"},
		"a message alone":                {[]string{`updates {'answer':{'messages':` + ai("1", "Hello") + `}}`}, "Hello", "Hello"},
		"in LangChain's short forms":     {[]string{`updates {'answer':{'messages':['ai','Hel']},'more':[{'messages':[{'role':'assistant','content':'lo'}]},{'x':1}]}`}, "Hel\n\nlo", "Hel\n\nlo"},
		"another id":                     {[]string{token("1", "model", "Hello"), last("1", "model"), wrote("model", ai("2", "Hello"))}, "Hello", "Hello"},
		"two nodes": {
			[]string{token("1", "writer", "Text"), wrote("writer", ai("1", "Text")), token("2", "critic", "Good"), wrote("critic", ai("2", "Good"))},
			"Text\n\nGood", "Text\n\nGood",
		},
		"before and after a tool": {
			[]string{token("1", "model", "Wait."), last("1", "model"), wrote("model", ai("1", "Wait.")), wrote("tools", `{'type':'tool','content':'42','tool_call_id':'c'}`), wrote("model", ai("2", "It is 42."))},
			"It is 42.", "Wait.\n\nIt is 42.",
		},
		"a tool that ends the run": {[]string{wrote("model", ai("1", "")), wrote("tools", `{'type':'tool','content':'42','tool_call_id':'c'}`)}, "42", "42"},
		"parallel models": {
			[]string{
				token("1", "a", "A1"), token("2", "b", "B1"), token("1", "a", "A2"), token("2", "b", "B2"), last("2", "b"), last("1", "a"),
				wrote("b", ai("2", "B1B2")), wrote("a", ai("1", "A1A2")),
			},
			"B1B2\n\nA1A2", "A1A2\n\nB1B2",
		},
		"a model that does not end": {[]string{token("1", "a", "A"), token("2", "b", "B"), wrote("a", ai("1", "A")), token("2", "b", "C"), wrote("b", ai("2", "BC"))}, "A\n\nBC", "A\n\nBC"},
		"models that do not speak to clients": {
			[]string{
				token("1", "SummarizationMiddleware.before_model", "sum", `,'lc_source':'summarization'`), token("2", "TitleMiddleware.after_model", "title"),
				token("3", "model", "tagged", `,'tags':['middleware:x']`), token("4", "tools", "inside"), token("5", "model", "quiet", `,'tags':['nostream']`),
				strings.Replace(token("6", "agent", "sub"), "agent:1", "agent:1|model:2", 1), wrote("model", ai("7", "Hello")),
			},
			"Hello", "Hello",
		},
		"a subgraph that returns the conversation": {
			[]string{wrote("child", `{'type':'human','id':'h','content':'old'}`, ai("0", "old"), `{'type':'human','id':'i','content':'hi'}`, ai("1", "Hello"))}, "Hello", "Hello",
		},
		"an answer that is taken back": {[]string{wrote("model", ai("1", "Bad")), wrote("guard", `{'type':'remove','id':'1','content':''}`, ai("2", "Good"))}, "Good", "Bad\n\nGood"},
		"another attempt": {
			[]string{"metadata {'attempt':1}", token("1", "model", "Hel"), "metadata {'attempt':2}", token("2", "model", "Hello"), last("2", "model"), wrote("model", ai("2", "Hello"))},
			"Hello", "Hel\n\nHello",
		},
		"a question":    {[]string{wrote("model", ai("1", "")), `updates {'__interrupt__':[{'value':'Really?','id':'i'}]}`}, "Really?", "Really?"},
		"two questions": {[]string{`updates {'__interrupt__':[{'value':'b?','id':'b'}]}`, `updates {'__interrupt__':[{'value':{'question':'a?'},'id':'a'}]}`}, "a?", "a?"},
		"nothing":       {[]string{`updates {'x':{'messages':[]}}`, `updates {'n':null,'m':{'messages':[]},'o':{'messages':null},'p':5,'q':{'messages':[7]}}`}, "", ""},
	} {
		whole, streamed := both(t, tt.records...)
		require.Equal(t, tt.whole, whole, name)
		require.Equal(t, tt.streamed, streamed, name)
	}
}

// With stream_subgraphs a stream has the tokens of subgraphs. The message that the node of the subgraph writes is not shown again.
func TestTokensOfSubgraphs(t *testing.T) {
	t.Parallel()
	inside := func(line, ns string) string { // the token or update of a subgraph
		event, data, _ := strings.Cut(line, " ")
		return event + "|" + ns + " " + strings.ReplaceAll(data, "'langgraph_checkpoint_ns':'", "'langgraph_checkpoint_ns':'"+ns+"|")
	}
	one, two := "child:1", "other:2|deep:3"
	lines := records(
		inside(token("1", "model", "Hel"), one), inside(token("2", "model", "Wo"), two), inside(token("1", "model", "lo"), one), inside(token("2", "model", "rld"), two),
		inside(token("9", "SummarizationMiddleware.before_model", "sum", `,'lc_source':'summarization'`), one),
		inside(token("8", "model", "of a tool"), "tools:5"), inside(token("7", "tools", "in a tool"), one),
		inside(wrote("model", ai("2", "World")), two), inside(wrote("model", ai("1", "Hello")), one),
		wrote("other", ai("2", "World")), wrote("child", `{'type':'human','id':'h','content':'hi'}`, ai("1", "Hello")), token("3", "model", "End"), wrote("model", ai("3", "End")),
	)
	for _, tt := range []struct{ field, want string }{
		{`,'stream_subgraphs':true`, "Hello\n\nWorld\n\nEnd"},
		{``, "World\n\nHello\n\nEnd"}, // as their nodes end
	} {
		turn := chat(t, `{'model':'m','stream':true`+tt.field+`,'messages':[{'role':'user','content':'hi'}]}`, thread)
		body, err := turn.Body(assistant, openai.Memory{})
		require.NoError(t, err)
		require.Equal(t, tt.field != "", gjson.GetBytes(body, "stream_subgraphs").Bool())
		a := openai.NewAnswer(turn, nil)
		var parts []string
		for _, r := range append(lines, nil) {
			pieces := []answer.Piece(nil)
			if r == nil {
				pieces = a.End()
			} else {
				pieces = a.Add(r)
			}
			for _, piece := range pieces {
				for len(parts) <= piece.Message {
					parts = append(parts, "")
				}
				parts[piece.Message] += piece.Text
			}
		}
		require.Equal(t, tt.want, strings.Join(parts, "\n\n"))
	}
	_, err := openai.ReadChat([]byte(`{"model":"m","stream_subgraphs":1,"messages":[{"role":"user","content":"hi"}]}`), "")
	require.ErrorContains(t, err, "stream_subgraphs is true or false")
}

// However the tokens of parallel models mix, each message is shown once, in one piece.
func TestParallelModelsNeverMix(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(4)
		var lines, want []string
		left, done := make([]int, n), make([]bool, n)
		for i := range left {
			left[i] = r.IntN(5)
			want = append(want, strings.Repeat(fmt.Sprint(i), left[i]))
		}
		whole := append([]string{}, want...)
		for range 1000 {
			i := r.IntN(n)
			mid, node := fmt.Sprint("m", i), fmt.Sprint("n", i)
			switch {
			case left[i] > 0:
				left[i]--
				lines = append(lines, token(mid, node, fmt.Sprint(i)))
				if left[i] == 0 && r.IntN(2) == 0 {
					lines = append(lines, last(mid, node))
				}
			case !done[i]:
				done[i] = true
				if r.IntN(3) > 0 { // else its node writes no message
					lines = append(lines, wrote(node, ai(mid, whole[i])))
				}
			}
		}
		_, streamed := both(t, lines...)
		var got []string
		if streamed != "" {
			got = strings.Split(streamed, "\n\n")
		}
		for i := range want {
			if whole[i] != "" {
				require.Contains(t, got, whole[i], "seed %d: %s", seed, streamed)
			}
		}
		seen := map[string]bool{}
		for _, g := range got {
			require.False(t, seen[g], "seed %d: %s", seed, streamed)
			seen[g] = true
		}
	}
}

// Texts that wait for another model are bounded, and shown when their node has ended.
func TestLongParallelTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	lines := []string{token("1", "a", "A")}
	for range 4 {
		lines = append(lines, token("2", "b", long))
	}
	lines = append(lines, wrote("b", ai("2", strings.Repeat(long, 4))), token("1", "a", "B"), wrote("a", ai("1", "AB")))
	_, streamed := both(t, lines...)
	require.Equal(t, "AB\n\n"+strings.Repeat(long, 4), streamed)
}

// An answer of eight times the tokens takes about eight times the time, not its square.
func TestStreamsTakeLinearTime(t *testing.T) {
	t.Parallel()
	turn := chat(t, `{'model':'m','stream':true,'messages':[{'role':'user','content':'hi'}]}`, "")
	one := records(token("1", "model", "word "))[0]
	measure := func(n int) time.Duration {
		best := time.Hour
		for range 5 {
			events := openai.NewChat(turn, someRun, openai.NewAnswer(turn, nil))
			var b []byte
			best = min(best, cputest.Time(func() {
				for range n {
					b = events.Append(b[:0], one)
				}
			}))
		}
		return best
	}
	require.Less(t, float64(measure(40_000)), 24*float64(measure(5_000)))
}

// Many models that speak, and many branches that ask, at once: an answer of 16 times as many takes about 16 times the time.
func TestWideAnswersTakeLinearTime(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]func(n int) []string{
		"models": func(n int) (lines []string) {
			for _, part := range []func(i int) string{
				func(i int) string { return token(strconv.Itoa(i), "n"+strconv.Itoa(i), "word") },
				func(i int) string { return wrote("n"+strconv.Itoa(i), ai(strconv.Itoa(i), "word")) },
			} {
				for i := range n {
					lines = append(lines, part(n-i))
				}
			}
			return lines
		},
		"questions": func(n int) (lines []string) {
			for i := range n {
				lines = append(lines, `updates {'__interrupt__':[{'value':'b?','id':'`+strconv.Itoa(i)+`'}]}`)
			}
			return lines
		},
	} {
		measure := func(n int) time.Duration {
			of, best := records(lines(n)...), time.Hour
			for range 5 {
				a := answer.New(answer.Options{Live: true, Resumable: true})
				best = min(best, cputest.Time(func() {
					for _, r := range of {
						a.Add(r)
					}
					a.End()
				}))
			}
			return best
		}
		small, large := measure(500), measure(8000)
		require.Less(t, float64(large), 48*float64(small), "%s: %s and %s", name, small, large)
	}
}

func TestChatShapes(t *testing.T) {
	t.Parallel()
	turn := chat(t, `{'model':'m','messages':[{'role':'user','content':'hi'}]}`, "")
	a := openai.NewAnswer(turn, nil)
	for _, r := range records(wrote("m", ai("1", "Hello"), `{'type':'tool','content':'','tool_call_id':'c'}`), wrote("m", strings.Replace(ai("2", "World"), "{", "{'response_metadata':{'finish_reason':'length'},", 1))) {
		a.Add(r)
	}
	require.JSONEq(t, `{"id":"chatcmpl-00000000-0000-7000-8000-000000000002","object":"chat.completion","created":1000,"model":"m",
		"choices":[{"index":0,"message":{"role":"assistant","content":"World","refusal":null},"logprobs":null,"finish_reason":"length"}],
		"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`,
		string(openai.AppendChat(nil, turn, someRun, a)))

	turn = chat(t, `{'model':'m','stream':true,'stream_options':{'include_usage':true},'messages':[{'role':'user','content':'hi'}]}`, "")
	events := openai.NewChat(turn, someRun, openai.NewAnswer(turn, nil))
	var b []byte
	for _, r := range records("metadata {}", token("1", "m", "a\\nb"), wrote("m", ai("1", "a\\nb")), "updates {'__interrupt__':[{'id':'i',\n'value':'ok?'}]}") {
		b = events.Append(b, r)
	}
	head := `{"id":"chatcmpl-00000000-0000-7000-8000-000000000002","object":"chat.completion.chunk","created":1000,"model":"m"`
	want := head + `,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}
` + head + `,"choices":[{"index":0,"delta":{"content":"a\nb"},"logprobs":null,"finish_reason":null}],"usage":null}
` + head + `,"choices":[{"index":0,"delta":{"content":"\n\nok?\n\n(This cannot be answered, because the conversation has no thread.)"},"logprobs":null,"finish_reason":null}],"usage":null}
` + head + `,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"interrupt":{"thread_id":null,"interrupts":[{"id":"i","value":"ok?"}],"answer":"The run had no thread and cannot be resumed. Send the header X-Thread-Id with a UUID from the first message on"}}
` + head + `,"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}
[DONE]
`
	require.Equal(t, "data: "+strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "\n", "\n\ndata: ")+"\n\n", string(events.End(b)))

	events = openai.NewChat(turn, someRun, openai.NewAnswer(turn, nil))
	failed := events.End(events.Append(nil, records("error {'error':'ValueError','message':'no'}")[0]))
	require.True(t, strings.HasSuffix(string(failed), "data: "+`{"error":{"message":"ValueError: no","type":"server_error","param":null,"code":"run_failed"}}`+"\n\n"), string(failed))
}

// Whatever a client sends that is JSON is refused or makes a valid request for a run, on every kind of thread.
func FuzzReadChat(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","stream":true,"metadata":{"thread_id":"` + thread + `","a":"b"},"user":"u","messages":[{"role":"system","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":""}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"input_file","file_url":"x"},{"type":"input_image","image_url":"x"}]}]}`,
		`{"model":"m","messages":[{"role":"assistant","refusal":"no","content":null}]}`, `[]`, `null`, `{"messages":{}}`,
	} {
		f.Add(body, `{"t":[{"id":"i","value":{"action_requests":[{"name":"f"}]}}]}`)
		f.Add(body, `{"t":[{"value":"x"},{"id":"j"}]}`)
	}
	f.Fuzz(func(t *testing.T, text, interrupts string) {
		body, err := compat.Prepare([]byte(text))
		if err != nil || !json.Valid([]byte(interrupts)) {
			return
		}
		for _, header := range []string{"", thread} {
			turn, err := openai.ReadChat(body, header)
			if err != nil {
				require.True(t, fault.Is(err, fault.Invalid))
				continue
			}
			for _, m := range []openai.Memory{{}, {Exists: true}, {Exists: true, Interrupts: json.RawMessage(interrupts)}} {
				got, err := turn.Body(assistant, m)
				if err != nil {
					require.True(t, fault.Is(err, fault.Invalid))
					continue
				}
				require.True(t, json.Valid(got), string(got))
			}
		}
	})
}

// Whatever graphs emit, both forms of the answer are valid.
func FuzzAnswer(f *testing.F) {
	f.Add("updates", `{"n":{"messages":[{"type":"ai","content":"x"}]}}`)
	f.Add("updates", `{"__interrupt__":[{"value":{"action_requests":[{"name":"f","args":{}}]},"id":"i"}]}`)
	f.Add("messages", `[{"type":"AIMessageChunk","id":"1","content":[{"type":"text","text":"x"}]},{"langgraph_node":"n"}]`)
	f.Add("error", `{"error":"x","message":"y"}`)
	f.Fuzz(func(t *testing.T, event, data string) {
		if !json.Valid([]byte(data)) {
			return
		}
		for _, stream := range []string{"false", "true"} {
			turn := chat(t, `{'model':'m','stream':`+stream+`,'messages':[{'role':'user','content':'hi'}]}`, "")
			a := openai.NewAnswer(turn, nil)
			events := openai.NewChat(turn, someRun, a)
			b := events.Append(nil, &bridge.Record{Event: event, Data: []byte(data)})
			b = events.Append(b, &bridge.Record{Event: event, Data: []byte(data)})
			for one := range strings.SplitSeq(strings.TrimSuffix(string(events.End(b)), "\n\n"), "\n\n") {
				one, ok := strings.CutPrefix(one, "data: ")
				require.True(t, ok)
				require.True(t, one == "[DONE]" || json.Valid([]byte(one)), one)
			}
			require.True(t, json.Valid(openai.AppendChat(nil, turn, someRun, a)))
		}
	})
}

// respond makes a turn of the body of a request for a response, in which ' stands for ".
func respond(t *testing.T, body string) *openai.Turn {
	t.Helper()
	turn, err := openai.ReadResponse([]byte(strings.ReplaceAll(body, "'", `"`)), "")
	require.NoError(t, err, body)
	return turn
}

var responseID = openai.ResponseID(someRun)

func TestResponseIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "resp_0000000000004000800000000000000100000000000070008000000000000002", responseID)
	at, r, ok := openai.ParseResponseID(responseID)
	require.True(t, ok)
	require.Equal(t, someRun.Thread, at)
	require.Equal(t, someRun.ID, r)
	for _, bad := range []string{"", "resp_", responseID + "0", strings.ToUpper(responseID), strings.Replace(responseID, "4", "x", 1), thread} {
		_, _, ok := openai.ParseResponseID(bad)
		require.False(t, ok, bad)
	}
}

func TestInputOfResponses(t *testing.T) {
	t.Parallel()
	turn := respond(t, `{'model':'m','instructions':'s','input':[
		{'role':'user','content':[{'type':'input_text','text':'a'},{'type':'input_image','image_url':'data:x','detail':'low'},{'type':'input_file','file_data':'data:y','filename':'f'},{'type':'input_file','file_url':'z'}]},
		{'type':'reasoning','summary':[]},
		{'type':'message','role':'assistant','content':[{'type':'output_text','text':'b','annotations':[]}]},
		{'type':'function_call','call_id':'c','name':'f','arguments':'{}'},
		{'type':'function_call_output','call_id':'c','output':'4'},
		{'role':'developer','content':'d'}],'store':false}`)
	require.Empty(t, turn.Thread)
	body, err := turn.Body(assistant, openai.Memory{})
	require.NoError(t, err)
	require.JSONEq(t, `[{"type":"system","content":"s"},
		{"type":"human","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x","detail":"low"}},{"type":"file","file":{"file_data":"data:y","filename":"f"}},{"type":"file","url":"z"}]},
		{"type":"ai","content":[{"type":"text","text":"b"}]},
		{"type":"ai","content":"","tool_calls":[{"id":"c","name":"f","type":"tool_call","args":{}}]},
		{"type":"tool","content":"4","tool_call_id":"c"},
		{"type":"system","content":"d"}]`, gjson.GetBytes(body, "input.messages").Raw)
}

// Of which thread a response is, and what of its input the thread gets: all, as clients send only what is new.
func TestThreadsOfResponses(t *testing.T) {
	t.Parallel()
	a, b := respond(t, `{'model':'m','input':'hi'}`), respond(t, `{'model':'m','input':'hi'}`)
	require.NotEmpty(t, a.Thread)
	require.NotEqual(t, a.Thread, b.Thread)
	for _, named := range []string{`'previous_response_id':'` + responseID + `'`, `'conversation':'` + thread + `'`, `'conversation':{'id':'conv_` + strings.ReplaceAll(thread, "-", "") + `'}`, `'metadata':{'thread_id':'` + thread + `'}`} {
		turn := respond(t, `{'model':'m','input':[{'role':'assistant','content':'b'},{'role':'user','content':'c'}],`+named+`}`)
		require.Equal(t, id.Thread(thread), turn.Thread, named)
		require.Equal(t, []string{"ai b", "human c"}, input(t, turn, openai.Memory{Exists: true}))
		body, err := turn.Body(assistant, openai.Memory{Exists: true, Checkpoint: "k"})
		require.NoError(t, err)
		require.Equal(t, "k", gjson.GetBytes(body, "checkpoint_id").Str)
	}
	require.Equal(t, someRun.ID, respond(t, `{'model':'m','input':'hi','previous_response_id':'`+responseID+`'}`).After())
	for body, param := range map[string]string{
		`{'input':'hi'}`:           "model",
		`{'model':'m'}`:            "input",
		`{'model':'m','input':[]}`: "input",
		`{'model':'m','store':false,'input':[{'type':'reasoning','summary':[]}]}`: "input",
		`{'model':'m','input':[{}]}`:                                                                                                 "input[0].role",
		`{'model':'m','input':[{'type':'item_reference','id':'x'}]}`:                                                                 "input[0].type",
		`{'model':'m','input':[{'role':'user','content':[{'type':'input_file','file_id':'x'}]}]}`:                                    "input[0].content[0].file_data",
		`{'model':'m','input':'hi','previous_response_id':'resp_1'}`:                                                                 "previous_response_id",
		`{'model':'m','input':'hi','conversation':'c'}`:                                                                              "conversation",
		`{'model':'m','input':'hi','store':false,'conversation':'` + thread + `'}`:                                                   "store",
		`{'model':'m','input':'hi','background':true}`:                                                                               "background",
		`{'model':'m','input':'hi','prompt':{'id':'p'}}`:                                                                             "prompt",
		`{'model':'m','input':'hi','text':{'format':{'type':'json_schema'}}}`:                                                        "text.format",
		`{'model':'m','input':'hi','tool_choice':{'type':'file_search'}}`:                                                            "tool_choice",
		`{'model':'m','input':'hi','include':['message.output_text.logprobs']}`:                                                      "include",
		`{'model':'m','input':'hi','metadata':{'thread_id':'00000000-0000-4000-8000-000000000009'},'conversation':'` + thread + `'}`: "",
	} {
		_, err := openai.ReadResponse([]byte(strings.ReplaceAll(body, "'", `"`)), "")
		var e *openai.Error
		require.ErrorAs(t, err, &e, body)
		if param != "" {
			require.Equal(t, param, e.Param, body)
		}
	}
}

// A stream says the same as the whole: its last event has the response, and its events lead to it.
func TestResponseShapes(t *testing.T) {
	t.Parallel()
	lines := []string{
		"metadata {}", token("1", "model", "Wait"), token("1", "model", "."), last("1", "model"), wrote("model", ai("1", "Wait.")),
		wrote("tools", `{'type':'tool','content':'42','tool_call_id':'c'}`), token("2", "model", "42"), wrote("model", ai("2", "42")),
	}
	turn := respond(t, `{'model':'m','input':'hi','instructions':'s','user':'u','metadata':{'k':'v'},'conversation':'`+thread+`'}`)
	a := openai.NewAnswer(turn, nil)
	for _, r := range records(lines...) {
		a.Add(r)
	}
	a.End()
	whole := string(openai.AppendResponse(nil, turn, someRun, a))
	texts := func(response string) (out []string) {
		for _, item := range gjson.Get(response, "output").Array() {
			require.Equal(t, "completed", item.Get("status").Str)
			out = append(out, item.Get("content.0.text").Str)
		}
		return out
	}
	require.Equal(t, []string{"Wait.", "42"}, texts(whole))
	for path, want := range map[string]string{
		"id": `"` + responseID + `"`, "object": `"response"`, "created_at": "1000", "status": `"completed"`, "error": "null", "model": `"m"`, "instructions": `"s"`, "user": `"u"`,
		"metadata.k": `"v"`, "conversation.id": `"conv_` + strings.ReplaceAll(thread, "-", "") + `"`, "store": "true", "usage.total_tokens": "6", "usage.input_tokens": "4", "usage.output_tokens": "2",
	} {
		require.Equal(t, want, gjson.Get(whole, path).Raw, path)
	}

	turn = respond(t, `{'model':'m','input':'hi','stream':true,'conversation':'`+thread+`'}`)
	events := openai.NewResponse(turn, someRun, openai.NewAnswer(turn, nil))
	var sent []byte
	for _, r := range records(lines...) {
		sent = events.Append(sent, r)
	}
	var kinds []string
	var shown []string
	for i, one := range strings.Split(strings.TrimSuffix(string(events.End(sent)), "\n\n"), "\n\n") {
		kind, data, ok := strings.Cut(one, "\ndata: ")
		require.True(t, ok, one)
		require.Equal(t, "event: "+gjson.Get(data, "type").Str, kind)
		require.Equal(t, int64(i), gjson.Get(data, "sequence_number").Int())
		kinds = append(kinds, strings.TrimPrefix(gjson.Get(data, "type").Str, "response."))
		n := int(gjson.Get(data, "output_index").Int())
		switch kinds[len(kinds)-1] {
		case "output_item.added":
			require.Len(t, shown, n)
			shown = append(shown, "")
		case "output_text.delta":
			shown[n] += gjson.Get(data, "delta").Str
		case "output_text.done":
			require.Equal(t, shown[n], gjson.Get(data, "text").Str)
		case "completed":
			require.Equal(t, shown, texts(gjson.Get(data, "response").Raw))
			require.Equal(t, int64(6), gjson.Get(data, "response.usage.total_tokens").Int())
		}
	}
	item := []string{"output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"}
	want := append([]string{"created", "in_progress"}, item[:3]...)
	want = append(append(append(want, item[2:]...), item...), "completed")
	require.Equal(t, want, kinds)
	require.Equal(t, []string{"Wait.", "42"}, shown)
}

func TestEndsOfResponses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"error {'error':'ValueError','message':'no'}":                                              `failed {"code":"server_error","message":"ValueError: no"} null`,
		wrote("m", `{'type':'ai','content':'x','response_metadata':{'stop_reason':'max_tokens'}}`): `incomplete null {"reason":"max_output_tokens"}`,
		wrote("m", `{'type':'ai','content':'x','response_metadata':{'finish_reason':'SAFETY'}}`):   `incomplete null {"reason":"content_filter"}`,
		"updates {'__interrupt__':[{'value':'ok?','id':'i'}]}":                                     `completed null null`,
	} {
		turn := respond(t, `{'model':'m','input':'hi','stream':true}`)
		events := openai.NewResponse(turn, someRun, openai.NewAnswer(turn, nil))
		all := strings.Split(strings.TrimSuffix(string(events.End(events.Append(nil, records(line)[0]))), "\n\n"), "\n\n")
		_, data, _ := strings.Cut(all[len(all)-1], "\ndata: ")
		r := gjson.Get(data, "response")
		require.Equal(t, want, r.Get("status").Str+" "+r.Get("error").Raw+" "+r.Get("incomplete_details").Raw)
		require.Equal(t, "response."+r.Get("status").Str, gjson.Get(data, "type").Str)
	}
}

func FuzzReadResponse(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","input":"hi","instructions":"x"}`, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","arguments":"{}"}],"conversation":"` + thread + `"}`,
		`{"model":"m","input":"hi","previous_response_id":"` + responseID + `"}`, `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a"}]}],"store":false}`,
	} {
		f.Add(body)
	}
	f.Add(`{"model":"m","input":[{"type":"reasoning"}],"store":false}`)
	f.Fuzz(func(t *testing.T, text string) {
		body, err := compat.Prepare([]byte(text))
		if err != nil {
			return
		}
		turn, err := openai.ReadResponse(body, "")
		if err != nil {
			require.True(t, fault.Is(err, fault.Invalid))
			return
		}
		got, err := turn.Body(assistant, openai.Memory{Exists: true})
		if err != nil {
			require.True(t, fault.Is(err, fault.Invalid))
			return
		}
		require.True(t, json.Valid(got), string(got))
		require.True(t, json.Valid(openai.AppendResponse(nil, turn, someRun, openai.NewAnswer(turn, nil))))
	})
}

// A graph that has nothing to do with messages does not answer with silence. One that only acts after an answer may.
func TestGraphsWithoutMessages(t *testing.T) {
	t.Parallel()
	line := records("updates {'echo':{'n':1}}")[0]
	for _, stream := range []string{"true", "false"} {
		for _, m := range []openai.Memory{{}, {Exists: true, Interrupts: json.RawMessage(`{"t":[{"id":"i","value":"ok?"}]}`)}} {
			turn := chat(t, `{'model':'m','stream':`+stream+`,'messages':[{'role':'user','content':'hi'}]}`, thread)
			_, err := turn.Body(assistant, m)
			require.NoError(t, err)
			a := openai.NewAnswer(turn, nil)
			a.Add(line)
			a.End()
			require.Equal(t, m.Waits(), a.Failed() == "", a.Failed())
		}
	}
}
