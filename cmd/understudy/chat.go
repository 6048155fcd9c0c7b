package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"understudy/internal/shell"
)

func newChat() *cobra.Command {
	var thread, message string
	cmd := &cobra.Command{
		Use:   "chat [GRAPH]",
		Short: "Talk to a graph of a running server",
		Long: `Talks to a graph of a running server in the terminal: answers as they are written, calls of tools and
their results, and questions of interrupts, which you answer here: approve, edit or reject what a tool is
about to do, or any text or JSON.

GRAPH is the name of a graph, or the ID of an assistant; it may be left out when the server has one graph, or
with --thread. Graphs that take no messages are given JSON. With --message, text or JSON answers the question that a
thread waits with, if there is one; a call of a tool is answered by approve or reject. Ctrl-C cancels a
run; at the prompt it ends the chat, as /quit does. /new begins another conversation. Text on standard
input works too: one line is one message.`,
		Example: `  understudy chat
  understudy chat agent --url https://agents.example.com --header 'Authorization: Bearer …'
  understudy chat --thread 01a206fb-8dce-76de-9933-4f6ae92099a6
  understudy chat agent --message 'What is 6 times 7?'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused(cmd, "takes one graph, but got %q (quote a message: --message 'two words')", args)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return cobra.NoFileCompletions(cmd, args, begin)
			}
			return completeGraphs(cmd, args, begin)
		},
	}
	cmd.Flags().SortFlags = false
	server := serverFlags(cmd)
	cmd.Flags().StringVarP(&thread, "thread", "t", "", "`ID` of the conversation to continue (default a new one)")
	cmd.Flags().StringVarP(&message, "message", "m", "", "send one `TEXT`, or answer a question with it, print the answer and end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := server()
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		c := &chat{api: api, thread: thread, out: out, errs: cmd.ErrOrStderr(), palette: colorsOf(out), in: newLines(cmd.InOrStdin(), out), seen: map[string]bool{}}
		if len(args) == 1 {
			c.assistant = args[0]
		}
		if c.once = cmd.Flags().Changed("message"); c.once && strings.TrimSpace(message) == "" {
			return misused(cmd, "--message is empty: nothing would be sent (in a script, check the variable that it comes from)")
		}
		return c.run(cmd.Context(), message)
	}
	return cmd
}

// chat is one conversation in a terminal.
type chat struct {
	palette
	api       *client
	assistant string                 // graph or assistant
	known     atomic.Pointer[string] // ID of the assistant; nil: the server lists none
	thread    string                 // "" before the first message
	schema    json.RawMessage
	out       io.Writer
	errs      io.Writer // shows that an answer takes its time
	in        lineReader
	seen      map[string]bool // messages and calls of tools that were shown, by ID
	column    int             // whether text was written since the last line end
	failed    bool            // the last run did
	hinted    bool            // how to continue was said
	answered  bool            // a run was resumed
	unlisted  bool            // the server lists no assistants
	once      bool            // one message was given by a flag
}

func (c *chat) run(ctx context.Context, message string) error {
	asking := waitSignWhy(ctx, c.errs, always("asking "+c.api.base), func(ctx context.Context) string {
		return c.api.whyWait(ctx, waited{assistant: orEmpty(c.known.Load())})
	})
	waiting, err := c.begin(ctx)
	asking.end()
	if err != nil {
		return err
	}
	if len(waiting) > 0 && message != "" {
		return c.ended(c.reply(ctx, waiting, message), true)
	}
	_, err = c.resolve(ctx, waiting)
	if message != "" && err == nil {
		var input json.RawMessage
		if input, err = c.input(message); err == nil {
			if waiting, err = c.turn(ctx, map[string]any{"input": input}); err == nil {
				_, err = c.resolve(ctx, waiting)
			}
		}
		return c.ended(err, true)
	}
	for err == nil {
		var text string
		if text, err = c.in.line(c.paint(bold, "you> ")); err != nil {
			break
		}
		err = c.said(ctx, strings.TrimSpace(text))
	}
	if c.thread != "" && c.in.interactive() && !c.hinted {
		fmt.Fprintln(c.out, c.paint(dim, "continue with: "+c.api.command("chat --thread "+c.thread)))
	}
	return c.ended(err, !c.in.interactive())
}

// reply answers what a graph waits for with a message, in place of what a person would type. Of a question about calls of tools each line of the message answers one.
func (c *chat) reply(ctx context.Context, waiting []interrupt, message string) error {
	typed := &givenLines{lines: []string{message}, after: c.in}
	if waiting[0].decides() {
		typed.lines = strings.Split(message, "\n")
	}
	c.in = typed
	_, err := c.resolve(ctx, waiting)
	if errors.Is(err, io.EOF) && !c.answered {
		return usageError{fmt.Errorf("--message %q does not answer what the run waits for; it still waits", message)}
	}
	return err
}

var (
	// errQuit ends the chat.
	errQuit = errors.New("quit")
	// errStopped is the end by Ctrl-C of a command that a script waits for.
	errStopped = errors.New("stopped by Ctrl-C")
)

// ended returns the result of a chat. For a script it is an error when the last run failed.
func (c *chat) ended(err error, script bool) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errQuit) {
		return err
	}
	if c.failed && script {
		return fmt.Errorf("the run failed: %s shows the error, %s the steps before it", c.api.command("state "+c.thread), c.api.command("logs "+c.thread))
	}
	return nil
}

// begin finds the graph and the thread, shows the end of an old conversation, and returns the interrupts that wait there.
func (c *chat) begin(ctx context.Context) ([]interrupt, error) {
	var waiting []interrupt
	if c.thread != "" {
		state, err := c.state(ctx)
		if err != nil {
			return nil, err
		}
		waiting = state
	}
	if c.assistant == "" {
		name, err := onlyAssistant(ctx, c.api)
		if err != nil {
			return nil, err
		}
		c.assistant = name
	}
	// Without a schema, such as of a graph that does not import, the run says what is wrong.
	var schemas struct {
		Input json.RawMessage `json:"input_schema"`
		State json.RawMessage `json:"state_schema"`
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	id, err := assistantID(ctx, c.api, c.assistant)
	if err != nil {
		return nil, err
	}
	if c.unlisted = id == ""; !c.unlisted {
		c.known.Store(&id)
	}
	if !c.unlisted && c.api.get(ctx, "/assistants/"+id+"/schemas", &schemas) == nil {
		// The keys of the state say more than nothing. Without either most graphs take messages.
		for _, schema := range []json.RawMessage{schemas.State, schemas.Input} {
			if gjson.ParseBytes(schema).IsObject() {
				c.schema = schema
			}
		}
	}
	if c.in.interactive() {
		fmt.Fprintln(c.out, c.paint(dim, fmt.Sprintf("%s on %s; /new begins another conversation, /quit ends", c.assistant, c.api.base)))
		if !c.messages() {
			fmt.Fprintln(c.out, c.paint(dim, "T"+c.takes()[1:]))
		}
	}
	return waiting, nil
}

// shownMessages is how many messages of an old conversation are shown.
const shownMessages = 6

func (c *chat) state(ctx context.Context) ([]interrupt, error) {
	var thread, state json.RawMessage
	if err := c.api.get(ctx, "/threads/"+c.thread, &thread); err != nil {
		return nil, c.api.threadError(err, c.thread)
	}
	if err := c.api.get(ctx, "/threads/"+c.thread+"/state", &state); err != nil {
		return nil, err
	}
	if c.assistant == "" {
		c.assistant = gjson.GetBytes(thread, "metadata.graph_id").String()
	}
	messages := gjson.GetBytes(state, "values.messages").Array()
	for i, m := range messages {
		if i < len(messages)-shownMessages {
			c.seen[m.Get("id").String()] = true
			continue
		}
		if t := m.Get("type").String(); t == "human" || m.Get("role").String() == "user" {
			c.seen[m.Get("id").String()] = true
			c.println(c.paint(bold, "you> ") + c.clean(textOf(m.Get("content"))))
			continue
		}
		c.message(m)
	}
	var waiting []interrupt
	for _, i := range gjson.GetBytes(state, "interrupts").Array() {
		waiting = append(waiting, interruptOf(i))
	}
	return waiting, nil
}

// threadError explains that a thread is not there.
func (c *client) threadError(err error, thread string) error {
	var refused *statusError
	if errors.As(err, &refused) && isRefused(err) {
		return fmt.Errorf("there is no thread %s (%s); list them: %s", thread, refused.detail, c.command("threads"))
	}
	return err
}

// isRefused reports whether a server that has the route does not know what a request names.
func isRefused(err error) bool {
	var refused *statusError
	return errors.As(err, &refused) && !refused.page && refused.detail != noRoute && (refused.status == http.StatusNotFound || refused.status == http.StatusUnprocessableEntity)
}

// said does what a line asks for.
func (c *chat) said(ctx context.Context, text string) error {
	switch text {
	case "":
		return nil
	case "/quit", "/exit":
		return errQuit
	case "/new":
		c.thread = ""
		c.println(c.paint(dim, "a new conversation"))
		return nil
	case "/help":
		c.println("/new begins another conversation, /quit ends the chat; all else is sent")
		return nil
	}
	input, err := c.input(text)
	if err != nil {
		if !c.in.interactive() { // a script learns of it, as with --message
			return usageError{err}
		}
		c.println(c.paint(red, err.Error()))
		return nil
	}
	waiting, err := c.turn(ctx, map[string]any{"input": input})
	if err == nil {
		_, err = c.resolve(ctx, waiting)
	}
	return err
}

func (c *chat) messages() bool {
	return len(c.schema) == 0 || takesMessages(c.schema)
}

// input makes the input of a run of a line.
func (c *chat) input(text string) (json.RawMessage, error) {
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) && !c.messages() {
		return json.RawMessage(text), nil
	}
	if c.messages() {
		return messagesInput(text), nil
	}
	return nil, errors.New(c.takes())
}

// takes says, in a clause, what a graph without messages takes, here and in a request.
func (c *chat) takes() string {
	sample := c.clean(string(sampleInput(c.schema)))
	return "this graph takes JSON, such as " + sample + `; in a request:
  curl -N ` + c.api.base + `/runs/stream -H 'content-type: application/json' -d '{"assistant_id": "` + c.assistant + `", "input": ` + shell.Inside(sample) + `}'`
}

// turn executes one run and shows it. It returns the interrupts at which it ended. Ctrl-C cancels the run.
func (c *chat) turn(ctx context.Context, request map[string]any) ([]interrupt, error) {
	made := c.thread == ""
	if made {
		var created struct {
			ID string `json:"thread_id"`
		}
		create := func() error {
			return c.api.post(ctx, "/threads", map[string]any{"metadata": map[string]any{}}, &created)
		}
		if err := c.api.patiently(ctx, c.note, absent, create); err != nil {
			return nil, err
		}
		c.thread = created.ID
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	defer signal.Stop(stop)
	r, err := c.execute(ctx, request, stop)
	switch {
	case r.cancelled:
		if !c.in.interactive() || c.once {
			return nil, errStopped
		}
		return nil, nil
	case errors.As(err, new(unfinishedError)) && c.in.interactive() && !c.once:
		c.println(c.paint(red, "✗ "+err.Error()))
		return nil, nil
	case isRefused(err):
		return nil, c.refused(ctx, err, made)
	case err != nil:
		return nil, err
	}
	return r.waiting, nil
}

// refused explains that a server refuses a run. made says that its thread is new.
func (c *chat) refused(ctx context.Context, err error, made bool) error {
	if made {
		_ = c.api.call(ctx, http.MethodDelete, "/threads/"+c.thread, nil, nil) // nothing is in it
		c.thread = ""
		if c.unlisted {
			return noGraph(c.assistant, nil)
		}
	} else if gone := c.api.get(ctx, "/threads/"+c.thread, nil); gone != nil {
		return c.api.threadError(gone, c.thread)
	}
	var s *statusError
	if errors.As(err, &s) && strings.HasPrefix(s.detail, "Invalid assistant") { // its assistant is in the database, which other servers may share
		return fmt.Errorf("this server does not serve the graph %q: it was removed from its langgraph.json, or only another server of its database serves it (%s)", c.assistant, s.detail)
	}
	return fmt.Errorf("the server refuses a run of %q: %w", c.assistant, err)
}

// execute executes one run and shows it, until it ends or a signal to stop cancels it.
func (c *chat) execute(ctx context.Context, request map[string]any, stop <-chan os.Signal) (*turn, error) {
	request["assistant_id"] = c.assistant
	request["stream_mode"] = []string{"messages-tuple", "updates"}
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	c.failed = false
	r := &turn{chat: c, streamed: map[string]*strings.Builder{}}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-stop:
			r.cancel(ctx)
			cancel()
		case <-streaming.Done():
		}
	}()
	r.sign = waitSignWhy(ctx, c.errs, r.waitsFor, func(ctx context.Context) string {
		w := r.waited()
		why := c.api.whyWait(ctx, w)
		if why == "" && w.run != "" {
			r.doing.Store(new(c.clean(c.api.doing(ctx, w))))
		}
		return why
	})
	defer r.sign.end()
	err := r.stream(streaming, request)
	cancel()
	<-watched
	if r.cancelled {
		if r.id.Load() == nil && err != nil && !absent(err) {
			r.refused = errors.New("the server has not answered yet")
		}
		c.endLine()
		if r.refused != nil {
			c.note("not cancelled: " + r.refused.Error() + "; the run may continue, see " + c.api.command("runs "+c.thread))
			return r, err
		}
		c.println(c.paint(yellow, "cancelled"))
		return r, err
	}
	if r.lost && err == nil {
		err = r.reload(ctx)
	}
	r.sign.end()
	if err == nil {
		err = r.settled(ctx)
	}
	c.endLine()
	if err == nil && !r.shown && len(r.waiting) == 0 {
		for _, line := range r.kept { // of a graph that keeps its result next to messages
			c.println(line)
		}
	}
	return r, err
}

// resolve answers interrupts until the graph has no more questions.
func (c *chat) resolve(ctx context.Context, waiting []interrupt) ([]interrupt, error) {
	for len(waiting) > 0 {
		answers := map[string]any{}
		var only any
		for _, i := range waiting {
			answer, err := c.answer(i)
			if err != nil {
				if errors.Is(err, io.EOF) {
					c.hinted = true
					c.println(c.paint(yellow, "The run waits for your answer: "+c.api.command("chat --thread "+c.thread)))
				}
				return waiting, err
			}
			only, answers[i.id] = answer, answer
		}
		command := map[string]any{"resume": only}
		if len(waiting) > 1 {
			command["resume"] = answers
		}
		var err error
		if waiting, err = c.turn(ctx, map[string]any{"command": command}); err != nil {
			return nil, err
		}
		c.answered = true
	}
	return nil, nil
}
