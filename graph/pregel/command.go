package pregel

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonplus"
)

// commandInput is a Command that starts a run. On a new thread it is the input, which START reads from the checkpoint.
type commandInput struct {
	resume  *value // nil: none
	update  []field
	pairs   bool // update was a list of pairs
	gotos   []write
	list    bool // goto was a list
	invalid error
}

// readCommand reads a Command that starts a run.
func readCommand(raw json.RawMessage) *commandInput {
	c := &commandInput{}
	doc := gjson.ParseBytes(raw)
	if resume := doc.Get("resume"); resume.Exists() && resume.Type != gjson.Null {
		c.resume = fromJSON(compact([]byte(resume.Raw)))
	}
	if to := doc.Get("goto"); to.Exists() && to.Type != gjson.Null {
		targets := []gjson.Result{to}
		if c.list = true; to.IsArray() { // LangGraph Server wraps a single goto in a list
			targets = to.Array()
		}
		for _, t := range targets {
			switch {
			case t.Type == gjson.String:
				c.gotos = append(c.gotos, write{branchTo + t.Str, fromString(START)})
			case t.IsObject() && t.Get("node").Type == gjson.String:
				arg := null
				for _, key := range []string{"input", "arg", "args"} {
					if a := t.Get(key); a.Exists() {
						arg = fromJSON(compact([]byte(a.Raw)))
						break
					}
				}
				c.gotos = append(c.gotos, write{chanTasks, fromSend(Send{Node: t.Get("node").Str, Arg: arg})})
			default:
				c.invalid = Errorf("TypeError", "In Command.goto, expected Send/str, got %s", short([]byte(t.Raw)))
			}
		}
	}
	update := doc.Get("update")
	switch {
	case !update.Exists() || update.Type == gjson.Null:
	case update.IsObject():
		c.update, _ = fromJSON(compact([]byte(update.Raw))).object()
	case update.IsArray():
		if pairs, ok := pairsOf(fromJSON(compact([]byte(update.Raw)))); ok {
			c.update, c.pairs = pairs, true
			break
		}
		fallthrough
	default:
		c.update = []field{{"__root__", fromJSON(compact([]byte(update.Raw)))}}
	}
	return c
}

// pairsOf reads an update as a list of [key, value].
func pairsOf(v *value) ([]field, bool) {
	items, ok := v.list()
	if !ok {
		return nil, false
	}
	var out []field
	for _, item := range items {
		pair, ok := item.list()
		if !ok || len(pair) != 2 {
			return nil, false
		}
		name, ok := pair[0].text()
		if !ok {
			return nil, false
		}
		out = append(out, field{name, pair[1]})
	}
	return out, true
}

// commandOf reads a Command of a Go program.
func (g *Graph) commandOf(cmd *Command) (input, error) {
	c := &commandInput{}
	if cmd.Graph != "" {
		return input{}, invalidUpdate("There is no parent graph")
	}
	if cmd.Resume != nil {
		c.resume = fromGo(cmd.Resume)
		if err := c.resume.check(); err != nil {
			return input{}, err
		}
	}
	var err error
	if c.gotos, err = g.gotos(cmd.Goto, nil, fromString(START)); err != nil {
		return input{}, err
	}
	c.list = reflect.ValueOf(cmd.Goto).Kind() == reflect.Slice
	if c.update, err = g.updateFields(cmd.Update); err != nil {
		return input{}, err
	}
	for _, f := range c.update {
		if err := f.v.check(); err != nil {
			return input{}, err
		}
	}
	return input{given: true, command: c}, nil
}

// asCommand returns the Command in the form that START reads.
func (c *commandInput) asCommand() *Command {
	cmd := &Command{}
	if c.update != nil {
		writes := make([]Write, len(c.update))
		for i, f := range c.update {
			writes[i] = Write{f.name, f.v}
		}
		cmd.Update = writes
	}
	if to := c.destinations(); len(to) > 0 {
		cmd.Goto = to
	}
	return cmd
}

// destinations returns the names and Sends of goto.
func (c *commandInput) destinations() []any {
	var to []any
	for _, w := range c.gotos {
		if w.channel == chanTasks {
			to = append(to, w.v.goVal.(Send))
		} else {
			to = append(to, strings.TrimPrefix(w.channel, branchTo))
		}
	}
	return to
}

// fields returns the arguments of the Command in Python.
func (c *commandInput) fields() []field {
	resume, update, to := null, null, emptyList
	if c.resume != nil {
		resume = c.resume
	}
	switch {
	case c.pairs:
		items := make([]*value, len(c.update))
		for i, f := range c.update {
			items[i] = fromItems([]*value{fromString(f.name), f.v})
		}
		update = fromItems(items)
	case c.update != nil:
		update = fromFields(c.update)
	}
	if list := c.destinations(); len(list) == 1 && !c.list {
		to = fromGo(list[0])
	} else if len(list) > 0 {
		to = fromGo(list)
	}
	return []field{{"graph", null}, {"update", update}, {"resume", resume}, {"goto", to}}
}

func (c *commandInput) appendJSON(b []byte) []byte { return appendFields(b, c.fields()) }

// appendPack encodes the Command as an object of its class, as LangGraph does. A plain mapping would be read back as an input
// with these keys.
func (c *commandInput) appendPack(b []byte) ([]byte, error) {
	var packed [][]byte
	for _, f := range c.fields()[1:] {
		p, err := f.v.packed()
		if err != nil {
			return b, err
		}
		packed = append(packed, p)
	}
	return jsonplus.AppendCommand(b, packed[0], packed[1], packed[2]), nil
}

// startCommand returns the Command that an input consists of, from this run or from a checkpoint.
func startCommand(v *value) (*commandInput, bool) {
	switch v.kind {
	case ofGo:
		c, ok := v.goVal.(*commandInput)
		return c, ok
	case ofPack:
		arguments, ok := jsonplus.Arguments(*v.pack.Load(), "Command")
		if !ok {
			return nil, false
		}
		return storedCommand(arguments)
	}
	return nil, false
}

// storedCommand reads the arguments of a Command in a checkpoint.
func storedCommand(arguments []byte) (*commandInput, bool) {
	fields, ok := fromPack(arguments).object()
	if !ok {
		return nil, false
	}
	c := &commandInput{}
	for _, f := range fields {
		switch f.name {
		case "resume":
			if !f.v.isNull() {
				c.resume = f.v
			}
		case "update":
			if f.v.isNull() {
				break
			}
			if c.update, ok = f.v.object(); ok {
				break
			}
			if c.update, c.pairs = pairsOf(f.v); !c.pairs {
				c.update = []field{{"__root__", f.v}}
			}
		case "goto":
			targets, isList := f.v.list()
			if c.list = isList; !isList {
				targets = []*value{f.v}
			}
			for _, to := range targets {
				if name, ok := to.text(); ok {
					c.gotos = append(c.gotos, write{branchTo + name, fromString(START)})
				} else if node, arg, timeout, ok := sendOf(to); ok {
					c.gotos = append(c.gotos, write{chanTasks, fromSend(Send{Node: node, Arg: arg, Timeout: timeout})})
				}
			}
		}
	}
	return c, true
}
