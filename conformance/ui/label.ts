export const label = (city: string, degrees: number): string => `${city}: ${degrees} degrees`;
