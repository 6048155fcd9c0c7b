import { nothing } from "./nowhere";

export default { broken: () => <p>{nothing}</p> };
