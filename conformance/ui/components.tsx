import { useState } from "react";
import { useStreamContext } from "@langchain/langgraph-sdk/react-ui";
import { label } from "./label";
import "./styles.css";

type Props = { city: string; degrees: number };

function Weather({ city, degrees }: Props) {
  const [asked, ask] = useState(0);
  const { values } = useStreamContext<{ messages: unknown[] }>();
  return (
    <section className="weather" aria-label="weather">
      <b>{label(city, degrees)}</b>
      <button onClick={() => ask(asked + 1)}>asked {asked} times</button>
      <i>{values.messages.length} messages</i>
    </section>
  );
}

export default { weather: Weather };
