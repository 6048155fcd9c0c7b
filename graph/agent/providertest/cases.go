package providertest

import (
	"fmt"
	"time"

	"github.com/tidwall/gjson"
)

// Case is a conversation with a provider: what the agent is, what the provider answers, and what is to come of it.
type Case struct {
	// Line is the group: 1 the process, 2 response formats, 3 secrets, 4 summaries, 5 threads that change models, 6 Anthropic, 7 other
	// providers, 8 timeouts, 9 parallel calls, 10 odd types, 11 errors, 12 texts, 13 content that not every provider takes, 14 OpenAI's
	// Responses API.
	Line     int
	Name     string // letters, digits and -
	Provider string // as in provider:model; "": openai
	Name2    string // of the model; "": m
	Model    map[string]any
	Agent    map[string]any
	Replies  []Reply // to one request each; the last again and again
	Rules    []Rule  // in addition to those of the provider
	Down     bool    // nothing listens at the provider's address
	Turns    []Turn  // nil: a person who says hi
	Check    func(*Result) error
	Want     Want
}

// Turn is the input of a run: what a person says, or messages.
type Turn struct {
	Says  string
	Input string // JSON; "": Says
	Error string // part of the error with which the run ends; "": none. That of the last run is in Want
}

// Want is what has to come of the last run.
type Want struct {
	Answer string // text of the last message of the model
	Error  string // part of the error; "": none
	Calls  int    // requests that the provider got in all; 0: any number
	Tools  string // results of tools in all runs, joined by a comma
}

// Result is what came of a case.
type Result struct {
	State  gjson.Result // values of the last run
	Sent   []gjson.Result
	Stream string // all events of the last run
	Took   time.Duration
}

// Last returns the last message.
func (r *Result) Last() gjson.Result {
	all := r.State.Get("messages").Array()
	if len(all) == 0 {
		return gjson.Result{}
	}
	return all[len(all)-1]
}

// want returns an error unless a value is what it should be.
func want(what string, got, wanted any) error {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		return fmt.Errorf("%s is %v; want %v", what, got, wanted)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// rules are those of the provider, and more.
func (c *Case) rules() []Rule {
	var own []Rule
	if c.Model["use_responses_api"] == true {
		return append([]Rule{responsesRules, bearer}, c.Rules...)
	}
	switch c.Provider {
	case "anthropic":
		own = []Rule{anthropicRules}
	case "", "openai":
		own = []Rule{openAIRules, bearer, onlyKnown("extra_content")} // Vertex may be behind base_url
	case "deepseek":
		own = []Rule{openAIRules, bearer, deepSeek, onlyKnown("reasoning_content")}
	case "googleai":
		own = []Rule{openAIRules, bearer, gemini3, onlyKnown("extra_content")}
	case "mistralai":
		own = []Rule{openAIRules, bearer, mistral, onlyKnown()}
	case "azure_openai":
		own = []Rule{openAIRules, azure, onlyKnown()}
	case "groq":
		own = []Rule{openAIRules, onlyKnown()}
	case "openrouter":
		own = []Rule{openAIRules, bearer, onlyKnown("reasoning_details")}
	}
	return append(own, c.Rules...)
}

type object = map[string]any

var calculator = object{"tools": []string{"calculator"}}

// schema is a response format.
var schema = object{"response_format": object{"title": "Sum", "type": "object", "properties": object{"sum": object{"type": "number"}}, "required": []string{"sum"}}}

// Cases returns all cases.
func Cases() []*Case {
	var all []*Case
	for _, list := range [][]*Case{serverCases(), anthropicCases(), providerCases(), timeoutCases(), parallelCases(), lenientCases(), errorCases(), textCases(), contentCases(), responsesCases()} {
		all = append(all, list...)
	}
	return all
}
