package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"understudy/internal/config"
)

// commandGroups are the headings of the list of commands.
var commandGroups = []struct {
	id, title string
	commands  []string
}{
	{"develop", "On your machine:", []string{"init", "dev", "doctor"}},
	{"run", "In production:", []string{"serve", "worker", "proxy", "health"}},
	{"look", "Talk to a running server:", []string{"chat", "threads", "state", "runs", "logs"}},
	{"data", "Data:", []string{"import", "export", "backup", "restore", "encrypt", "rebuild", "keys", "audit"}},
	{"more", "More:", nil},
}

func groupOf(command string) string {
	for _, g := range commandGroups {
		if slices.Contains(g.commands, command) {
			return g.id
		}
	}
	return "more"
}

// groupAnnotation is the annotation of flags that names their heading.
const groupAnnotation = "understudy_group"

// Widths of --help.
const (
	helpWidth  = 100
	flagColumn = 32
)

// help writes the description of a command and its usage.
func help(cmd *cobra.Command, _ []string) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", reflow(text, helpWidth), cmd.UsageString())
}

// reflow wraps paragraphs. Lines that begin with a space stay as they are.
func reflow(text string, width int) string {
	var out, paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			out = append(out, wrap(strings.Join(paragraph, " "), width)...)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			end()
			out = append(out, line)
			continue
		}
		paragraph = append(paragraph, line)
	}
	end()
	return strings.Join(out, "\n")
}

// usage writes what --help shows below the description: flags in groups, no line longer than helpWidth.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprint(w, "Usage:\n")
	if cmd.Runnable() && cmd.HasParent() {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		commandList(w, g.Title, cmd, func(c *cobra.Command) bool { return c.GroupID == g.ID })
	}
	commandList(w, "Commands:", cmd, func(c *cobra.Command) bool { return c.GroupID == "" })
	flagLists(w, cmd)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s [command] --help says more about a command.\n", cmd.CommandPath())
	}
	return nil
}

func commandList(w io.Writer, title string, of *cobra.Command, in func(*cobra.Command) bool) {
	for _, c := range of.Commands() {
		if !c.IsAvailableCommand() && c.Name() != "help" || !in(c) {
			continue
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s\n", title)
			title = ""
		}
		fmt.Fprintf(w, "  %-12s %s\n", c.Name(), c.Short)
	}
}

// flagLists writes the flags: those without a group first.
func flagLists(w io.Writer, cmd *cobra.Command) {
	groups := map[string][]*pflag.Flag{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		group := ""
		if names := f.Annotations[groupAnnotation]; len(names) > 0 {
			group = names[0]
		}
		groups[group] = append(groups[group], f)
	})
	for _, group := range append([]string{""}, config.Groups()...) {
		if len(groups[group]) == 0 {
			continue
		}
		title := group
		if title == "" {
			title = "Flags"
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, f := range groups[group] {
			io.WriteString(w, flagUsage(f)) //nolint:errcheck // help on a closed output
		}
	}
}

// flagUsage is a flag with its help, wrapped.
func flagUsage(f *pflag.Flag) string {
	kind, help := pflag.UnquoteUsage(f)
	head := "      --" + f.Name
	if f.Shorthand != "" {
		head = "  -" + f.Shorthand + ", --" + f.Name
	}
	if kind != "" && f.NoOptDefVal == "" {
		head += " " + kind
	}
	if f.Annotations[groupAnnotation] == nil && showsDefault(f) {
		help += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	var b strings.Builder
	b.WriteString(head)
	at := utf8.RuneCountInString(head)
	if at > flagColumn-2 {
		b.WriteString("\n")
		at = 0
	}
	for i, line := range wrap(help, helpWidth-flagColumn) {
		if i > 0 {
			b.WriteString("\n")
			at = 0
		}
		b.WriteString(strings.Repeat(" ", flagColumn-at) + line)
	}
	return b.String() + "\n"
}

func showsDefault(f *pflag.Flag) bool {
	return f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && !strings.Contains(f.Usage, "(default ")
}

// wrap breaks a text at spaces into lines of at most width characters; longer words stay whole.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
