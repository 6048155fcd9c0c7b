package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// traceback is one of Python's, taken apart.
type traceback struct {
	parts []tracePart // causes first, as Python prints them
	node  string      // of the graph; "" when it does not say
}

// tracePart is an exception and the frames it passed.
type tracePart struct {
	frames []traceFrame
	err    string
}

type traceFrame struct {
	file, line, fn, code string
}

var (
	frameLine = regexp.MustCompile(`^File "(.*)", line (\d+)(?:, in (.*))?$`)
	taskNote  = regexp.MustCompile(`^During task with name '(.*)' and id '`)
)

// parseTraceback takes a traceback apart. What it does not understand becomes part of the error.
func parseTraceback(text string) (t traceback) {
	part := tracePart{}
	end := func() {
		if part.err = strings.TrimSpace(part.err); part.err != "" || len(part.frames) > 0 {
			t.parts = append(t.parts, part)
		}
		part = tracePart{}
	}
	for line := range strings.SplitSeq(text, "\n") {
		bare := strings.TrimLeft(line, " |+-") // groups of exceptions are drawn with these
		indented := strings.HasPrefix(line, " ")
		switch m := frameLine.FindStringSubmatch(bare); {
		case m != nil:
			part.frames = append(part.frames, traceFrame{file: m[1], line: m[2], fn: m[3]})
		case strings.HasPrefix(bare, "Traceback (most recent call last):"), strings.HasPrefix(bare, "Exception Group Traceback"):
		case strings.HasPrefix(bare, "The above exception was the direct cause"), strings.HasPrefix(bare, "During handling of the above exception"):
			end()
		case taskNote.MatchString(bare):
			t.node = taskNote.FindStringSubmatch(bare)[1]
		case indented && len(part.frames) > 0 && part.err == "":
			if last := &part.frames[len(part.frames)-1]; last.code == "" {
				last.code = strings.TrimSpace(line)
			}
		case bare != "" || part.err != "":
			part.err += line + "\n"
		}
	}
	end()
	return t
}

// render writes what a developer needs first: the error, and the frames of own code, innermost last. ok is false when no frame is own.
func (t traceback) render(own func(file string) bool, short func(file string) string, p palette) (lines []string, ok bool) {
	others := 0
	for i := len(t.parts) - 1; i >= 0; i-- {
		part := t.parts[i]
		if i < len(t.parts)-1 {
			lines = append(lines, "caused by "+p.paint(red, p.printable(firstLine(part.err))))
		}
		for _, f := range part.frames {
			if !own(f.file) {
				others++
				continue
			}
			ok = true
			line := p.paint(cyan, short(f.file)+":"+f.line)
			if f.fn != "" && f.fn != "<module>" {
				line += " in " + f.fn
			}
			lines = append(lines, line)
			if f.code != "" {
				lines = append(lines, "    "+p.printable(f.code))
			}
		}
	}
	if others > 0 {
		lines = append(lines, p.paint(dim, fmt.Sprintf("%d frames of libraries left out; --log-level debug shows them", others)))
	}
	return lines, ok
}

// innermost is the frame that raised the last error; nil when there is none.
func (t traceback) innermost() *traceFrame {
	if len(t.parts) == 0 {
		return nil
	}
	frames := t.parts[len(t.parts)-1].frames
	if len(frames) == 0 {
		return nil
	}
	return &frames[len(frames)-1]
}

// inPackage returns the name of a file within the folder that its package is installed in.
func inPackage(file string) string {
	for _, folder := range []string{"/site-packages/", "/dist-packages/"} {
		if _, name, ok := strings.Cut(strings.ReplaceAll(file, `\`, "/"), folder); ok {
			return name
		}
	}
	return file
}

// ofPython reports whether it has a frame of Python. What a graph in Go raised has none.
func (t traceback) ofPython() bool {
	return slices.ContainsFunc(t.parts, func(p tracePart) bool { return len(p.frames) > 0 })
}

// title is the last error: "ZeroDivisionError: division by zero".
func (t traceback) title() string {
	if len(t.parts) == 0 {
		return ""
	}
	return t.parts[len(t.parts)-1].err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
