package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"time"

	"understudy/graph"
	"understudy/graph/pregel"
)

// BuiltIn returns a tool that declared agents can use by name. ok is false for an unknown name.
func BuiltIn(name string) (t Tool, ok bool) {
	for _, t := range builtIns {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// BuiltInNames returns the names of all built-in tools.
func BuiltInNames() []string {
	names := make([]string, len(builtIns))
	for i, t := range builtIns {
		names[i] = t.Name
	}
	slices.Sort(names)
	return names
}

type (
	calculatorArgs struct {
		Expression string `json:"expression" jsonschema:"such as (3 + 4) * 6"`
	}
	timeArgs struct {
		Timezone string `json:"timezone,omitempty" jsonschema:"IANA name such as Europe/Berlin; UTC when left out"`
	}
	rememberArgs struct {
		Key  string `json:"key" jsonschema:"short name under which it is kept"`
		Fact string `json:"fact" jsonschema:"what to remember, one sentence"`
	}
	recallArgs struct {
		Limit int `json:"limit,omitempty" jsonschema:"how many facts at most; 20 when left out"`
	}
)

var builtIns = []Tool{
	MustTool("calculator", "Works out a sum exactly: + - * / % and brackets.", func(_ context.Context, a calculatorArgs) (any, error) {
		return calculate(a.Expression)
	}),
	MustTool("current_time", "Returns the date and the time of day.", func(_ context.Context, a timeArgs) (any, error) {
		zone, err := time.LoadLocation(a.Timezone)
		if err != nil {
			return nil, fmt.Errorf("there is no time zone %q", a.Timezone)
		}
		return time.Now().In(zone).Format("Monday, 2006-01-02 15:04:05 -07:00 MST"), nil
	}),
	MustTool("remember", "Keeps a fact about the person for later conversations.", remember),
	MustTool("recall", "Lists the facts that were kept about the person.", recall),
}

// memorySpace returns the namespace of stored facts: that of the user in the run's configuration, else a common one.
func memorySpace(ctx context.Context) []string {
	info, _ := pregel.Info(ctx)
	var config struct {
		Configurable struct {
			UserID string `json:"user_id"`
		} `json:"configurable"`
	}
	if json.Unmarshal(info.Config, &config) == nil && config.Configurable.UserID != "" {
		return []string{"memories", config.Configurable.UserID}
	}
	return []string{"memories", "default"}
}

var errNoStore = errors.New("there is no store in this run")

func remember(ctx context.Context, a rememberArgs) (any, error) {
	store := pregel.StoreOf(ctx)
	if store == nil {
		return nil, errNoStore
	}
	value, err := json.Marshal(map[string]string{"fact": a.Fact})
	if err != nil {
		return nil, err
	}
	_, err = store.Batch(ctx, []graph.StoreOp{{Put: &graph.StorePut{Namespace: memorySpace(ctx), Key: a.Key, Value: value}}})
	if err != nil {
		return nil, err
	}
	return "Remembered.", nil
}

func recall(ctx context.Context, a recallArgs) (any, error) {
	store := pregel.StoreOf(ctx)
	if store == nil {
		return nil, errNoStore
	}
	if a.Limit <= 0 || a.Limit > 100 {
		a.Limit = 20
	}
	found, err := store.Batch(ctx, []graph.StoreOp{{Search: &graph.StoreSearch{Prefix: memorySpace(ctx), Limit: a.Limit}}})
	if err != nil {
		return nil, err
	}
	var facts []string
	for _, item := range found[0].Items {
		var v struct {
			Fact string `json:"fact"`
		}
		if json.Unmarshal(item.Value, &v) == nil && v.Fact != "" {
			facts = append(facts, item.Key+": "+v.Fact)
		}
	}
	if len(facts) == 0 {
		return "Nothing is remembered yet.", nil
	}
	return strings.Join(facts, "\n"), nil
}

// maxExpression limits the calculator's input; its numbers are exact, so their length depends on the input.
const maxExpression = 1000

// calculate evaluates an expression with exact fractions, and returns the result with at most twelve digits.
func calculate(expression string) (string, error) {
	if len(expression) > maxExpression {
		return "", fmt.Errorf("the expression is longer than %d characters", maxExpression)
	}
	tree, err := parser.ParseExpr(strings.NewReplacer("×", "*", "÷", "/", "−", "-", ",", "").Replace(expression))
	if err != nil {
		return "", fmt.Errorf("%q is no sum", expression)
	}
	v, err := evaluate(tree)
	if err != nil {
		return "", err
	}
	if whole := constant.ToInt(v); whole.Kind() == constant.Int {
		return whole.ExactString(), nil
	}
	f, _ := constant.Float64Val(v)
	return fmt.Sprintf("%.12g", f), nil
}

func evaluate(e ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return evaluate(e.X)
	case *ast.BasicLit:
		// Large exponents would result in huge numbers.
		if (e.Kind == token.INT || e.Kind == token.FLOAT) && !strings.ContainsAny(e.Value, "eEpP") {
			if v := constant.MakeFromLiteral(e.Value, e.Kind, 0); v.Kind() != constant.Unknown {
				return constant.ToFloat(v), nil
			}
		}
	case *ast.UnaryExpr:
		x, err := evaluate(e.X)
		if err == nil && (e.Op == token.SUB || e.Op == token.ADD) {
			return constant.UnaryOp(e.Op, x, 0), nil
		}
		if err != nil {
			return nil, err
		}
	case *ast.BinaryExpr:
		return binary(e)
	}
	return nil, errors.New("only numbers, + - * / % and brackets can be worked out")
}

func binary(e *ast.BinaryExpr) (constant.Value, error) {
	x, err := evaluate(e.X)
	if err != nil {
		return nil, err
	}
	y, err := evaluate(e.Y)
	if err != nil {
		return nil, err
	}
	switch e.Op {
	case token.ADD, token.SUB, token.MUL:
		return constant.BinaryOp(x, e.Op, y), nil
	case token.QUO, token.REM:
		if constant.Sign(y) == 0 {
			return nil, errors.New("division by zero")
		}
		if e.Op == token.QUO {
			return constant.BinaryOp(x, token.QUO, y), nil
		}
		a, b := constant.ToInt(x), constant.ToInt(y)
		if a.Kind() != constant.Int || b.Kind() != constant.Int {
			return nil, errors.New("% wants whole numbers")
		}
		return constant.ToFloat(constant.BinaryOp(a, token.REM, b)), nil
	}
	return nil, errors.New("only numbers, + - * / % and brackets can be worked out")
}
